"""Moves, rollouts and restarts of the controllers in any order: a Deployment never has a pod too many."""

import asyncio
import random

import pytest
from tests.unit.controllers.peers import Obj
from tests.unit.controllers.workloads.world import World, deployment


@pytest.mark.parametrize("seed", range(4))
async def test_no_pod_is_too_many_whatever_happens_when(world: World, seed: int) -> None:
    chance = random.Random(seed)
    await world.create(deployment(replicas=2))
    await world.rolled_out()
    too_many: list[int] = []

    def watch(kind: str, pod: Obj, old: Obj | None) -> None:
        count = len(world.alive(app="echo"))
        if count > 3:
            too_many.append(count)

    world.cell.pods.subscribe(watch)
    for number in range(20):
        bound = [p for p in world.alive() if p["spec"].get("nodeName")]
        if bound:
            await world.cell.checkpoint(f"m{number}", chance.choice(bound)["metadata"]["name"], action="Move")
        if chance.random() < 0.3:
            await world.cell._controllers[-1].stop()
            await world.cell.start()
        if chance.random() < 0.4:
            annotations = {"number": str(number)}
            await world.patch(
                "Deployment", {"spec": {"template": {"metadata": {"annotations": annotations}}}}
            )
        await asyncio.sleep(chance.random() * 0.05)
    await world.rolled_out()
    await world.until(lambda: len(world.pods()) == 2)
    assert not too_many
