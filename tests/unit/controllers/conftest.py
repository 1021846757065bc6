"""A real API server in this process, scripted kubelets behind it, and the controllers in front of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.controllers.peers import Cell


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    """An API server with the nodes a, b and c; the controllers are started by the test."""
    found = await Cell.make(tmp_path)
    for name in ("a", "b", "c"):
        await found.add_node(name)
    try:
        yield found
    finally:
        await found.close()
