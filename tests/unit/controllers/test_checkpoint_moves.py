"""Moves and saves that go well: phases, status, events, and the pod that comes out."""

import asyncio
import re

from tests.unit.controllers.peers import DIGEST, Cell, restore_from, running, snapshot_bytes

from kube32.contract import NAMES


async def test_a_move_replaces_the_pod_on_its_target_in_the_documented_phases(cell: Cell) -> None:
    await cell.start()
    before = await cell.add_pod()
    done = await cell.move("b")
    assert cell.phases() == ["Pending", "Saving", "Moving", "Completed"]
    pod = await cell.until(lambda: _settled(cell))
    assert pod["spec"]["nodeName"] == "b"
    assert pod["metadata"]["uid"] != before["metadata"]["uid"]
    assert pod["metadata"]["labels"] == before["metadata"]["labels"]
    status = done["status"]
    assert status["nodeName"] == "a" and status["targetNode"] == "b" and status["newPodName"] == "echo"
    assert status["sizeBytes"] == len(snapshot_bytes()) and status["imageSha256"] == DIGEST
    assert status["podTimeMs"] == 1234 and status["takenAt"]
    assert cell.kubelets.nodes["a"].calls == ["checkpoint?leave=frozen&timeoutMs=10000"]


def _settled(cell: Cell) -> dict[str, object] | None:
    pod = cell.pods.get("default", "echo")
    return pod if pod is not None and restore_from(pod) is None else None


async def test_a_move_tells_moving_and_moved_with_the_time_from_the_freeze(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    done = await cell.move("b")
    told = dict(await cell.reasons())
    assert told["Moving"] == "Moving from a to b with checkpoint ckpt"
    assert re.fullmatch(r"Moved from a to b in \d+ ms from the freeze", told["Moved"])
    assert done["status"]["message"] == told["Moved"]
    assert "Restored" not in told and "MoveFailed" not in told


async def test_the_replacement_names_its_checkpoint_until_it_runs(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    await cell.move("b")
    bound = [o for _, o in cell.history if o["kind"] == "Pod" and o["spec"].get("nodeName") == "b"]
    assert restore_from(bound[0]) == "ckpt" and bound[0]["status"]["phase"] == "Pending"


async def test_no_more_than_one_pod_is_there_at_any_step(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    for number, target in enumerate(["b", "a", "c", "a"]):
        await cell.move(target, name=f"hop-{number}")
    kinds = [kind for kind, obj in cell.history if obj["kind"] == "Pod"]
    assert kinds[0] == "ADDED" and set(kinds[1:]) == {"MODIFIED"}


async def test_a_move_by_selector_and_one_left_to_the_scheduler_never_choose_the_source(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    await cell.checkpoint("by-label", action="Move", target={"nodeSelector": {"zone": "c"}})
    assert (await cell.finish("by-label"))["status"]["targetNode"] == "c"
    done = await cell.move(None, name="anywhere")
    assert done["status"]["targetNode"] in ("a", "b")


async def test_a_save_stores_the_state_and_leaves_the_pod_running(cell: Cell) -> None:
    await cell.start()
    before = await cell.add_pod()
    await cell.checkpoint()
    done = await cell.finish()
    assert cell.phases() == ["Pending", "Saving", "Saved"]
    assert done["status"]["nodeName"] == "a" and "targetNode" not in done["status"]
    assert cell.kubelets.nodes["a"].calls == ["checkpoint?leave=running&timeoutMs=10000"]
    assert (await cell.client.get("Pod", "echo", "default"))["metadata"]["uid"] == before["metadata"]["uid"]
    size = len(snapshot_bytes())
    assert ("Checkpointed", f"Saved state to checkpoint ckpt ({size} bytes)") in await cell.reasons()
    response = await cell.client.raw("GET", "/apis/kube32.io/v1/namespaces/default/checkpoints/ckpt/data")
    async with response:
        assert await response.read() == snapshot_bytes()


async def test_a_second_checkpoint_of_a_pod_waits_for_the_first(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    cell.kubelets.nodes["b"].on_pod = lambda pod: None
    await cell.checkpoint("first", action="Move", target={"nodeName": "b"})
    pod = await cell.until(lambda: _on(cell, "b"))
    await cell.checkpoint("second", action="Move", target={"nodeName": "c"})
    await cell.until(lambda: cell.phases("second") == ["Pending"])
    assert cell.phases("first") == ["Pending", "Saving", "Moving"]
    await cell.set_status(pod, running(pod))
    assert (await cell.finish("first"))["status"]["phase"] == "Completed"
    done = await cell.finish("second")
    assert done["status"]["phase"] == "Completed" and done["status"]["nodeName"] == "b"


def _on(cell: Cell, node: str) -> dict[str, object] | None:
    pod = cell.pods.get("default", "echo")
    return pod if pod is not None and pod["spec"].get("nodeName") == node else None


async def test_only_one_snapshot_is_under_way_at_a_time(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod("one", "a")
    await cell.add_pod("two", "b")
    busy, most = 0, 0

    async def count() -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.02)
        busy -= 1

    for name in ("a", "b"):
        cell.kubelets.nodes[name].before_answer = count
    for name in ("one", "two"):
        await cell.checkpoint(name, name)
    assert [(await cell.finish(name))["status"]["phase"] for name in ("one", "two")] == ["Saved", "Saved"]
    assert most == 1


async def test_a_checkpoint_in_progress_holds_a_finalizer(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    await cell.move("b")
    for _, obj in cell.history:
        if obj["kind"] == "Checkpoint" and obj.get("status", {}).get("phase") in ("Saving", "Moving"):
            assert NAMES.finalizer_checkpoint in obj["metadata"]["finalizers"]
