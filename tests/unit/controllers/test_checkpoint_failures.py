"""Moves that fail: each with its message, nothing left frozen, and the pod where it should be."""

import asyncio
from typing import Any

import pytest
from tests.unit.controllers.peers import (
    Cell,
    Obj,
    Stream,
    eventually,
    json_answer,
    restore_error,
    restore_from,
    running,
    snapshot_bytes,
)

from kube32.client.transport import ClientResponse, TransportError
from kube32.contract import LIMITS, NAMES


def _frozen(cell: Cell) -> set[str]:
    return set().union(*(n.frozen for n in cell.kubelets.nodes.values()))


async def _check_failed(cell: Cell, done: Obj, message: str, uid: str) -> None:
    """Failed with the message, told as an event, and the pod as it was."""
    assert done["status"]["phase"] == "Failed"
    assert done["status"]["message"] == message
    assert ("MoveFailed", f"Move with checkpoint ckpt failed: {message}") in await cell.reasons()
    pod = await cell.client.get("Pod", "echo", "default")
    assert pod["metadata"]["uid"] == uid and pod["spec"]["nodeName"] == "a"
    assert not _frozen(cell)


async def test_a_node_that_refuses_names_every_blocker(cell: Cell) -> None:
    await cell.start()
    pod = await cell.add_pod()
    blockers = ["open file /data/log (descriptor 3)", "dropped data segment 1"]
    cell.kubelets.nodes["a"].on_checkpoint = lambda: json_answer(409, reason="NotMovable", blockers=blockers)
    done = await cell.move("b")
    assert done["status"]["blockers"] == blockers
    await _check_failed(cell, done, f"2 blocker(s): {', '.join(blockers)}", pod["metadata"]["uid"])


async def test_a_call_that_outlasts_the_freeze_timeout_is_a_blocker(cell: Cell) -> None:
    await cell.start()
    pod = await cell.add_pod()
    blocker = "call k32_handle still running after 10000 ms"
    cell.kubelets.nodes["a"].on_checkpoint = lambda: json_answer(504, reason="Timeout", blockers=[blocker])
    done = await cell.move("b")
    assert done["status"]["blockers"] == [blocker]
    await _check_failed(cell, done, f"1 blocker(s): {blocker}", pod["metadata"]["uid"])


@pytest.mark.parametrize("cut", [0, 1, 68, 500, len(snapshot_bytes()) - 1])
async def test_a_snapshot_that_breaks_off_thaws_the_pod(cell: Cell, cut: int) -> None:
    await cell.start()
    pod = await cell.add_pod()
    cell.kubelets.nodes["a"].on_checkpoint = lambda: Stream(200, snapshot_bytes(), cut)
    done = await cell.move("b")
    assert cell.kubelets.nodes["a"].calls[-1] == "thaw"
    await _check_failed(
        cell, done, "node a gave no snapshot: it closed the connection", pod["metadata"]["uid"]
    )


async def test_a_snapshot_that_is_no_snapshot_is_not_stored_and_the_pod_is_thawed(cell: Cell) -> None:
    await cell.start()
    pod = await cell.add_pod()
    cell.kubelets.nodes["a"].on_checkpoint = lambda: Stream(200, b"x" * 200)
    done = await cell.move("b")
    cause = "the snapshot could not be stored: the snapshot does not begin with K32S"
    await _check_failed(cell, done, cause, pod["metadata"]["uid"])


async def test_a_snapshot_larger_than_the_pool_is_413_and_the_pod_is_thawed(cell: Cell) -> None:
    await cell.start()
    pod = await cell.add_pod()
    large = bytes(LIMITS.snapshot_pool_bytes + 1)
    cell.kubelets.nodes["a"].on_checkpoint = lambda: Stream(200, large)
    done = await cell.move("b")
    cause = (
        f"the snapshot could not be stored: the snapshot has {len(large)} bytes, "
        f"the space for all snapshots is {LIMITS.snapshot_pool_bytes}"
    )
    await _check_failed(cell, done, cause, pod["metadata"]["uid"])


async def test_a_node_that_cannot_be_reached_is_thawed_as_soon_as_it_can(cell: Cell) -> None:
    await cell.start()
    pod = await cell.add_pod()
    node = cell.kubelets.nodes["a"]
    node.reachable = False
    node.frozen.add("default/echo")  # the answer was lost, the freeze was not
    done = await cell.move("b")
    assert done["status"]["message"] == "node a gave no snapshot: node a cannot be reached"
    node.reachable = True
    await eventually(lambda: not node.frozen)
    assert (await cell.client.get("Pod", "echo", "default"))["metadata"]["uid"] == pod["metadata"]["uid"]


@pytest.mark.parametrize(
    ("status_of", "cause"),
    [
        (restore_error, "the replacement failed to restore on b: cannot restore the snapshot: no"),
        (
            lambda pod: {"phase": "Failed", "reason": "Evicted", "message": "out of room"},
            "the replacement failed on b: out of room",
        ),
    ],
)
async def test_a_replacement_that_fails_goes_back_to_its_source(
    cell: Cell, status_of: Any, cause: str
) -> None:
    await cell.start()
    before = await cell.add_pod()
    cell.kubelets.nodes["b"].on_pod = status_of
    done = await cell.move("b")
    assert cell.phases() == ["Pending", "Saving", "Moving", "Failed"]
    assert done["status"]["message"] == f"{cause}; the pod went back to a"
    pod = await cell.until(lambda: _restored(cell))
    assert pod["spec"]["nodeName"] == "a" and pod["metadata"]["uid"] != before["metadata"]["uid"]
    told = [reason for reason, _ in await cell.reasons()]
    assert told[-3:] == ["Moving", "MoveFailed", "Restored"]
    assert not _frozen(cell) - {"default/echo"}  # the source's own copy ends with its old uid


def _restored(cell: Cell) -> Obj | None:
    """The pod once it runs and no longer names a Checkpoint."""
    pod = cell._running("echo")
    return pod if pod is not None and restore_from(pod) is None else None


async def test_the_rollback_restores_from_the_same_checkpoint(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    cell.kubelets.nodes["b"].on_pod = restore_error
    await cell.move("b")
    await cell.until(lambda: _restored(cell))
    back = [
        o for _, o in cell.history if o["kind"] == "Pod" and restore_from(o) and o["spec"]["nodeName"] == "a"
    ]
    assert restore_from(back[0]) == "ckpt"


async def test_a_replacement_that_does_not_run_in_time_goes_back(cell: Cell) -> None:
    await cell.start(LIMITS.replace(move_timeout_ms=200))
    await cell.add_pod()
    cell.kubelets.nodes["b"].on_pod = lambda pod: None
    done = await cell.move("b")
    assert done["status"]["message"] == (
        "the replacement did not run on b within 0.2 s; the pod went back to a"
    )
    assert (await cell.until(lambda: _restored(cell)))["spec"]["nodeName"] == "a"


async def test_a_rollback_with_its_source_not_ready_waits_for_the_scheduler(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()

    def lose_source(pod: Obj) -> Obj | None:
        async def later() -> None:
            await cell.set_ready("a", "False")
            await cell.set_status(pod, restore_error(pod))

        cell._reports.add(asyncio.create_task(later()))
        return None

    cell.kubelets.nodes["b"].on_pod = lose_source
    done = await cell.move("b")
    assert done["status"]["message"].endswith("; node a is not Ready, the pod waits for the scheduler")
    unbound = [o for _, o in cell.history if o["kind"] == "Pod" and not o["spec"].get("nodeName")]
    assert restore_from(unbound[0]) == "ckpt"
    cell.kubelets.nodes["b"].on_pod = running
    pod = await cell.until(lambda: _restored(cell))
    assert pod["spec"]["nodeName"] in ("b", "c")


async def test_a_rollback_that_cannot_be_restored_either_starts_the_pod_afresh(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    cell.kubelets.nodes["b"].on_pod = restore_error
    cell.kubelets.nodes["a"].on_pod = lambda pod: restore_error(pod) if restore_from(pod) else running(pod)
    await cell.move("b")
    pod = await cell.until(lambda: _restored(cell))
    assert pod["spec"]["nodeName"] == "a"
    told = await cell.reasons()
    assert told[-1] == (
        "MoveFailed",
        "Move with checkpoint ckpt failed: cannot restore the snapshot: no; the pod starts afresh",
    )
    assert "Restored" not in dict(told)


async def test_a_pod_that_runs_at_the_last_moment_has_arrived(cell: Cell) -> None:
    await cell.start(LIMITS.replace(move_timeout_ms=100))
    await cell.add_pod()
    late: list[Obj] = []
    replacements = 0

    async def run_before_the_rollback(method: str, path: str) -> None:
        nonlocal replacements
        replacements += path.endswith("/replacement")
        if replacements == 2 and late:
            pod = late.pop()
            await cell.set_status(pod, running(pod))

    cell.kubelets.nodes["b"].on_pod = lambda pod: late.append(pod)
    cell.transport.before = run_before_the_rollback
    done = await cell.move("b")
    assert replacements == 2 and done["status"]["phase"] == "Completed"
    assert (await cell.until(lambda: _restored(cell)))["spec"]["nodeName"] == "b"


async def test_a_replacement_whose_answer_is_lost_is_found_and_followed(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    send = cell.transport.send
    lost: list[int] = []

    async def lose_the_answer(method: str, path: str, **options: Any) -> ClientResponse:
        response = await send(method, path, **options)
        if path.endswith("/replacement") and not lost:
            lost.append(response.status)
            raise TransportError("the connection broke")
        return response

    cell.transport.send = lose_the_answer  # type: ignore[method-assign]
    done = await cell.move("b")
    assert lost == [201] and done["status"]["phase"] == "Completed"
    assert (await cell.until(lambda: _restored(cell)))["spec"]["nodeName"] == "b"


@pytest.mark.parametrize(
    ("setup", "target", "message"),
    [
        ({}, {"nodeName": "a"}, "pod echo already runs on node a"),
        ({}, {"nodeName": "x"}, "node x not found"),
        ({"cordon": "b"}, {"nodeName": "b"}, "node b is cordoned"),
        ({"not_ready": "b"}, {"nodeName": "b"}, "node b is not Ready"),
        ({"not_ready": "a"}, {"nodeName": "b"}, "node a is not Ready"),
        (
            {"cordon": "b"},
            {"nodeSelector": {"zone": "b"}},
            "0/3 nodes are available: 1 node(s) already run the pod, 1 node(s) didn't match Pod's node "
            "affinity/selector, 1 node(s) were unschedulable.",
        ),
    ],
)
async def test_a_target_that_does_not_fit_is_refused_before_the_freeze(
    cell: Cell, setup: dict[str, str], target: dict[str, Any], message: str
) -> None:
    await cell.start()
    pod = await cell.add_pod()
    if "cordon" in setup:
        await cell.client.patch("Node", setup["cordon"], {"spec": {"unschedulable": True}})
    if "not_ready" in setup:
        await cell.set_ready(setup["not_ready"], "False")
    await cell.checkpoint(action="Move", target=target)
    await _check_failed(cell, await cell.finish(), message, pod["metadata"]["uid"])
    assert cell.phases() == ["Pending", "Failed"] and not cell.kubelets.nodes["a"].calls


async def test_a_target_without_room_is_refused_with_the_schedulers_reason(cell: Cell) -> None:
    await cell.start()
    await cell.add_node("small", memory="16Ki")
    asked = {"requests": {"memory": "64Ki"}}
    await cell.add_pod(containers=[{"name": "main", "image": "wasm://m", "resources": asked}])
    done = await cell.move("small")
    assert done["status"]["message"] == "0/1 nodes are available: 1 Insufficient memory."
    assert not cell.kubelets.nodes["a"].calls


async def test_a_module_whose_bytes_are_gone_is_a_blocker_before_the_freeze(cell: Cell) -> None:
    await cell.start()
    pod = await cell.add_pod()
    digest = pod["metadata"]["annotations"][NAMES.ann_wasm_sha256]
    (cell.server.data_dir / "modules" / f"{digest}.wasm").unlink()
    done = await cell.move("b")
    assert done["status"]["blockers"] == [f"module {digest} is no longer stored"]
    assert not cell.kubelets.nodes["a"].calls


async def test_a_pod_that_is_missing_pending_or_being_deleted_fails_with_its_own_words(cell: Cell) -> None:
    await cell.start()
    await cell.checkpoint("none", "nobody", action="Move")
    assert (await cell.finish("none"))["status"]["message"] == "pod nobody not found"
    await cell.add_pod("unbound", "", schedulerName="somebody-else")
    await cell.checkpoint("early", "unbound", action="Move")
    assert (await cell.finish("early"))["status"]["message"] == "pod unbound is not bound to a node"
    await cell.add_pod("leaving", "a")
    await cell.client.delete("Pod", "leaving", "default")
    await cell.checkpoint("late", "leaving", action="Move")
    assert (await cell.finish("late"))["status"]["message"] == "pod leaving is being deleted"


async def test_a_failed_save_is_told_as_checkpoint_failed(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    cell.kubelets.nodes["a"].on_checkpoint = lambda: json_answer(
        409, blockers=["container restarted during the freeze"]
    )
    await cell.checkpoint()
    done = await cell.finish()
    assert done["status"]["blockers"] == ["container restarted during the freeze"]
    assert (
        "CheckpointFailed",
        f"Checkpoint ckpt failed: {done['status']['message']}",
    ) in await cell.reasons()


async def test_a_pod_deleted_while_it_moves_fails_the_move_and_is_not_brought_back(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    cell.kubelets.nodes["b"].on_pod = lambda pod: None
    await cell.checkpoint(action="Move", target={"nodeName": "b"})
    await cell.until(lambda: cell.phases()[-1:] == ["Moving"] and cell.pod()["spec"].get("nodeName") == "b")
    await cell.client.delete("Pod", "echo", "default", grace_s=0)
    done = await cell.finish()
    assert done["status"]["message"] == "pod echo was deleted during the move"
    assert cell.pods.get("default", "echo") is None


async def test_a_pod_deleted_during_the_snapshot_is_left_alone(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()

    async def delete() -> None:
        cell.kubelets.nodes["a"].before_answer = None
        await cell.client.delete("Pod", "echo", "default", grace_s=0)

    cell.kubelets.nodes["a"].before_answer = delete
    done = await cell.move("b")
    assert done["status"]["message"] == "pod echo was deleted during the move"
    assert cell.pods.get("default", "echo") is None


async def test_a_checkpoint_deleted_during_the_snapshot_leaves_nothing_frozen(cell: Cell) -> None:
    await cell.start()
    pod = await cell.add_pod()

    async def delete() -> None:
        cell.kubelets.nodes["a"].before_answer = None
        await cell.client.delete("Checkpoint", "ckpt", "default")
        await cell.until(lambda: "deletionTimestamp" in cell.checkpoints.items["default", "ckpt"]["metadata"])

    cell.kubelets.nodes["a"].before_answer = delete
    await cell.checkpoint(action="Move", target={"nodeName": "b"})
    await cell.until(lambda: cell.phases() and cell.checkpoints.get("default", "ckpt") is None)
    assert not _frozen(cell)
    now = await cell.client.get("Pod", "echo", "default")
    assert now["metadata"]["uid"] == pod["metadata"]["uid"] and now["spec"]["nodeName"] == "a"


async def test_a_checkpoint_deleted_while_its_pod_moves_stays_until_the_move_is_over(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    waiting: list[Obj] = []
    cell.kubelets.nodes["b"].on_pod = lambda pod: waiting.append(pod)
    await cell.checkpoint(action="Move", target={"nodeName": "b"})
    await cell.until(lambda: waiting)
    await cell.client.delete("Checkpoint", "ckpt", "default")
    assert (await cell.client.get("Checkpoint", "ckpt", "default"))["metadata"]["deletionTimestamp"]
    await cell.set_status(waiting[0], running(waiting[0]))
    await cell.until(lambda: cell.checkpoints.get("default", "ckpt") is None)
    pod = await cell.until(lambda: _restored(cell))
    assert pod["spec"]["nodeName"] == "b"


async def test_a_pod_that_changes_during_the_snapshot_moves_all_the_same(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()

    async def label() -> None:
        await cell.client.patch("Pod", "echo", {"metadata": {"labels": {"new": "yes"}}}, "default")

    cell.kubelets.nodes["a"].before_answer = label
    assert (await cell.move("b"))["status"]["phase"] == "Completed"
    assert (await cell.client.get("Pod", "echo", "default"))["metadata"]["labels"]["new"] == "yes"


async def test_a_checkpoint_deleted_while_it_waits_is_gone_at_once_and_touches_nothing(cell: Cell) -> None:
    await cell.start()
    await cell.add_pod()
    waiting: list[Obj] = []
    cell.kubelets.nodes["b"].on_pod = lambda pod: waiting.append(pod)
    await cell.checkpoint("first", action="Move", target={"nodeName": "b"})
    await cell.until(lambda: waiting)
    await cell.checkpoint("second", action="Move", target={"nodeName": "c"})
    await cell.client.delete("Checkpoint", "second", "default")
    await cell.set_status(waiting[0], running(waiting[0]))
    assert (await cell.finish("first"))["status"]["phase"] == "Completed"
    await cell.until(lambda: cell.checkpoints.get("default", "second") is None)
    assert cell.phases("second") == ["Pending"] and not cell.kubelets.nodes["b"].calls
