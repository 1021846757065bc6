"""A controller stops at any step, another finds what it left: finished or undone, and nothing frozen."""

import asyncio

import pytest
from tests.unit.controllers.peers import Cell, Obj, restore_error, restore_from, running

from kube32.contract import LIMITS, NAMES


async def _leave(cell: Cell, phase: str, **status: object) -> None:
    """A Checkpoint as a controller that was killed leaves it."""
    await cell.checkpoint(action="Move", target={"nodeName": "b"})
    finalizers = {"metadata": {"finalizers": [NAMES.finalizer_checkpoint]}}
    await cell.client.patch("Checkpoint", "ckpt", finalizers, "default")
    fields = {"phase": phase, "nodeName": "a", "targetNode": "b", **status}
    await cell.client.patch("Checkpoint", "ckpt", {"status": fields}, "default", subresource="status")


async def _replace(cell: Cell, pod: Obj, node: str) -> Obj:
    """The one-write replacement, made by the controller that was killed."""
    body = {
        "apiVersion": "kube32.io/v1",
        "kind": "PodReplacement",
        "preconditions": {"uid": pod["metadata"]["uid"]},
        "nodeName": node,
        "annotations": {NAMES.ann_restore_from: "ckpt"},
    }
    return await cell.client.create("Pod", body, "default", subresource="replacement", name="echo")


@pytest.mark.parametrize("phase", ["Saving", "Moving"])
async def test_a_move_that_stopped_before_the_replacement_is_made_again(cell: Cell, phase: str) -> None:
    await cell.add_pod()
    cell.kubelets.nodes["a"].frozen.add("default/echo")
    await _leave(cell, phase)
    await cell.start()
    done = await cell.finish()
    assert done["status"]["phase"] == "Completed"
    assert (await cell.client.get("Pod", "echo", "default"))["spec"]["nodeName"] == "b"


@pytest.mark.parametrize("phase", ["Saving", "Moving"])
async def test_a_move_that_cannot_be_made_again_thaws_what_was_left_frozen(cell: Cell, phase: str) -> None:
    await cell.add_pod()
    cell.kubelets.nodes["a"].frozen.add("default/echo")
    await _leave(cell, phase)
    await cell.set_ready("b", "False")
    await cell.start()
    done = await cell.finish()
    assert done["status"]["message"] == "node b is not Ready"
    assert not cell.kubelets.nodes["a"].frozen


async def test_a_deleted_checkpoint_that_was_saving_thaws_its_pod_and_goes(cell: Cell) -> None:
    await cell.add_pod()
    cell.kubelets.nodes["a"].frozen.add("default/echo")
    await _leave(cell, "Saving")
    await cell.client.delete("Checkpoint", "ckpt", "default")
    await cell.start()
    await cell.until(lambda: cell.checkpoints.get("default", "ckpt") is None)
    assert not cell.kubelets.nodes["a"].frozen


async def test_a_replacement_that_was_written_is_waited_for(cell: Cell) -> None:
    pod = await cell.add_pod()
    await _leave(cell, "Moving", takenAt="2026-01-01T00:00:00Z")
    cell.kubelets.nodes["b"].on_pod = lambda pod: None
    new = await _replace(cell, pod, "b")
    await cell.start()
    await cell.set_status(new, running(new))
    done = await cell.finish()
    assert done["status"]["phase"] == "Completed"
    now = await cell.until(lambda: _unmarked(cell))
    assert now["metadata"]["uid"] == new["metadata"]["uid"]


def _unmarked(cell: Cell) -> Obj | None:
    pod = cell._running("echo")
    return pod if pod is not None and restore_from(pod) is None else None


async def test_a_replacement_that_failed_meanwhile_is_taken_back(cell: Cell) -> None:
    pod = await cell.add_pod()
    await _leave(cell, "Moving")
    cell.kubelets.nodes["b"].on_pod = restore_error
    await _replace(cell, pod, "b")
    await cell.start()
    done = await cell.finish()
    assert done["status"]["message"].endswith("; the pod went back to a")
    assert (await cell.until(lambda: _unmarked(cell)))["spec"]["nodeName"] == "a"


async def test_a_rollback_that_was_written_is_reported_with_its_cause(cell: Cell) -> None:
    pod = await cell.add_pod()
    await _leave(cell, "Moving", message="the replacement did not run on b within 60 s")
    await _replace(cell, pod, "a")
    await cell.start()
    done = await cell.finish()
    assert done["status"]["message"] == "the replacement did not run on b within 60 s; the pod went back to a"
    told = [reason for reason, _ in await cell.reasons()]
    assert "MoveFailed" in told


async def test_a_finished_move_whose_annotation_was_left_is_tidied_without_a_restored_event(
    cell: Cell,
) -> None:
    pod = await cell.add_pod()
    await _leave(cell, "Completed", newPodName="echo")
    await _replace(cell, pod, "b")
    await cell.start()
    await cell.finish()
    await cell.until(lambda: _unmarked(cell))
    assert "Restored" not in dict(await cell.reasons())


async def test_a_pod_that_is_gone_ends_the_move(cell: Cell) -> None:
    await cell.add_pod()
    await _leave(cell, "Moving")
    await cell.client.delete("Pod", "echo", "default", grace_s=0)
    await cell.start()
    assert (await cell.finish())["status"]["message"] == "pod echo was deleted during the move"


async def test_controllers_that_stop_in_the_middle_leave_nothing_frozen_and_the_next_ones_finish(
    cell: Cell,
) -> None:
    await cell.add_pod()
    first = await cell.start()
    source = cell.kubelets.nodes["a"]
    frozen, go_on = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        source.frozen.add("default/echo")
        source.before_answer = None
        frozen.set()
        await go_on.wait()

    source.before_answer = hang
    await cell.checkpoint(action="Move", target={"nodeName": "b"})
    await frozen.wait()
    await first.stop()
    assert not source.frozen
    await cell.start()
    assert (await cell.finish())["status"]["phase"] == "Completed"


async def test_controllers_killed_again_and_again_still_bring_the_pod_over(cell: Cell) -> None:
    await cell.add_pod()
    await cell.checkpoint(action="Move", target={"nodeName": "b"})
    for pause in (0.0, 0.001, 0.002, 0.004, 0.008, 0.016):
        controllers = await cell.start()
        await asyncio.sleep(pause)
        await controllers.stop()
    await cell.start()
    assert (await cell.finish())["status"]["phase"] == "Completed"
    pod = await cell.until(lambda: _unmarked(cell))
    assert pod["spec"]["nodeName"] == "b" and not cell.kubelets.nodes["b"].frozen


async def test_finished_checkpoints_go_after_their_time_unless_a_pod_names_them(cell: Cell) -> None:
    await cell.add_pod()
    await cell.start(LIMITS.replace(checkpoint_retention_ms=200))
    await cell.checkpoint("kept")
    await cell.finish("kept")
    mark = {"metadata": {"annotations": {NAMES.ann_restore_from: "kept"}}}
    cell.kubelets.nodes["c"].on_pod = lambda pod: None
    other = await cell.client.create(
        "Pod",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "other", "namespace": "default", **mark["metadata"]},
            "spec": {"nodeName": "c", "containers": [{"name": "main", "image": "wasm://m"}]},
        },
    )
    await cell.checkpoint("free")
    await cell.until(
        lambda: cell.phases("free")[-1:] == ["Saved"] and cell.checkpoints.get("default", "free") is None
    )
    assert cell.checkpoints.get("default", "kept") is not None
    await cell.client.delete("Pod", "other", "default", uid=other["metadata"]["uid"], grace_s=0)
    await cell.until(lambda: cell.checkpoints.get("default", "kept") is None)
