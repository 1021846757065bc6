"""A cluster whose nodes run and end pods as they are told, with the controllers started."""

from collections.abc import AsyncIterator

import pytest
from tests.unit.controllers.peers import Cell
from tests.unit.controllers.workloads.world import World


@pytest.fixture
async def world(cell: Cell) -> AsyncIterator[World]:
    """The nodes a, b and c with Module m, and all controllers."""
    found = await World.make(cell)
    try:
        yield found
    finally:
        await found.close()
