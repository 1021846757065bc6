"""Pods start, answer, end and start again as in Kubernetes: statuses, conditions, restart policies,
back-off.
"""

from typing import Any

import pytest

from kube32.contract import LIMITS, Limits

TRAPS_IN_HANDLE = '(module (memory (export "memory") 1) (func (export "k32_handle") unreachable))'
TRAPS_IN_INIT = """(module (memory (export "memory") 1) (func (export "k32_handle"))
  (func (export "k32_init") unreachable))"""
LOOPS = '(module (memory (export "memory") 1) (func (export "k32_handle") (loop (br 0))))'


def entry(code: int) -> str:
    """An entry-point pod that ends with a code."""
    return f'(module (memory (export "memory") 1) (func (export "main") (result i32) (i32.const {code})))'


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(pod_backoff_initial_ms=200, pod_backoff_max_ms=800)


async def test_a_pod_answers_requests_one_after_the_other(bench: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    assert (await node.ask("echo")).body == b"100"
    assert (await node.ask("echo")).body == b"200"


async def test_a_running_pod_has_the_status_of_a_kubelet(bench: Any, tools: Any) -> None:
    await bench.node()
    pod = await bench.running("echo", container={"resources": {"limits": {"cpu": "1", "memory": "64Ki"}}})
    status = pod["status"]
    assert status["phase"] == "Running"
    assert status["qosClass"] == "Guaranteed"
    assert status["hostIP"] == status["podIP"] == "127.0.0.1"
    assert status["podIPs"] == status["hostIPs"] == [{"ip": "127.0.0.1"}]
    assert status["startTime"].endswith("Z")
    kinds = {c["type"]: c["status"] for c in status["conditions"]}
    assert kinds == dict.fromkeys(
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"], "True"
    )
    container = tools.status(pod)
    assert container["ready"] and container["started"] and container["restartCount"] == 0
    assert container["containerID"].startswith("wasm://")
    assert container["imageID"] == "wasm-sha256:" + pod["metadata"]["annotations"]["kube32.io/wasm-sha256"]
    assert container["state"]["running"]["startedAt"].endswith("Z")


async def test_conditions_of_others_and_transition_times_are_kept(bench: Any, tools: Any) -> None:
    await bench.node()
    bench.pod("echo")
    pod = bench.cluster.pod("echo")
    gate = {"type": "example.com/gate", "status": "True"}
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2001-01-01T00:00:00Z"},
        gate,
    ]
    bench.cluster.put("Pod", pod, "default")
    await bench.until_ready("echo")
    pod = bench.cluster.pod("echo")
    assert tools.condition(pod, "example.com/gate") == gate
    assert tools.condition(pod, "PodScheduled")["lastTransitionTime"] == "2001-01-01T00:00:00Z"


async def test_a_trap_restarts_the_container_and_then_backs_off(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("bad", TRAPS_IN_HANDLE)
    reply = await node.ask("bad")
    assert reply.status == 502 and b"call k32_handle trapped: unreachable" in reply.body
    await tools.until(lambda: tools.status(bench.cluster.pod("bad"))["restartCount"] == 1)
    await bench.until_ready("bad")
    last = tools.status(bench.cluster.pod("bad"))["lastState"]["terminated"]
    assert last["reason"] == "Error" and last["exitCode"] == LIMITS.pod_exit_trap
    assert last["message"] == "call k32_handle trapped: unreachable"
    await node.ask("bad")
    waiting = await bench.until_waiting("bad", "CrashLoopBackOff")
    uid = bench.cluster.pod("bad")["metadata"]["uid"]
    assert waiting["message"] == f"back-off 0s restarting failed container=main pod=bad_default({uid})"
    assert bench.cluster.pod("bad")["status"]["phase"] == "Running"
    await tools.until(lambda: tools.status(bench.cluster.pod("bad"))["restartCount"] == 2)
    await tools.until(lambda: bench.cluster.events("BackOff"))


async def test_a_container_that_traps_in_k32_init_counts_its_restarts(bench: Any, tools: Any) -> None:
    await bench.node()
    bench.pod("bad", TRAPS_IN_INIT)
    await tools.until(lambda: tools.status(bench.cluster.pod("bad")).get("restartCount", 0) >= 2)
    assert tools.condition(bench.cluster.pod("bad"), "Ready")["reason"] == "ContainersNotReady"


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")],
)
async def test_an_entry_point_that_ends_ends_the_pod(
    bench: Any, tools: Any, policy: str, code: int, phase: str
) -> None:
    await bench.node()
    bench.pod("job", entry(code), spec={"restartPolicy": policy})
    pod = await bench.until_phase("job", phase)
    ended = tools.status(pod)["state"]["terminated"]
    assert ended["exitCode"] == code
    assert ended["reason"] == ("Completed" if code == 0 else "Error")
    assert tools.condition(pod, "Ready")["reason"] == (
        "PodCompleted" if phase == "Succeeded" else "PodFailed"
    )


@pytest.mark.parametrize(("policy", "code"), [("OnFailure", 3), ("Always", 0)])
async def test_an_entry_point_that_ends_is_started_again(
    bench: Any, tools: Any, policy: str, code: int
) -> None:
    await bench.node()
    bench.pod("job", entry(code), spec={"restartPolicy": policy})
    await tools.until(lambda: tools.status(bench.cluster.pod("job")).get("restartCount", 0) >= 2)
    assert bench.cluster.pod("job")["status"]["phase"] == "Running"


async def test_an_entry_point_pod_takes_no_requests(bench: Any) -> None:
    node = await bench.node()
    await bench.running(
        "spin", '(module (memory (export "memory") 1) (func (export "_start") (loop (br 0))))'
    )
    reply = await node.ask("spin")
    assert reply.status == 404
    assert reply.body == b"pod spin does not export k32_handle\n"


async def test_a_call_past_its_deadline_is_a_504_and_restarts_the_container(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("slow", LOOPS, annotations={"kube32.io/call-timeout": "50ms"})
    reply = await node.ask("slow")
    assert reply.status == 504 and b"call k32_handle ran longer than 50 ms" in reply.body
    await tools.until(lambda: tools.status(bench.cluster.pod("slow"))["restartCount"] == 1)


async def test_a_deleted_pod_finishes_its_call_and_goes(bench: Any, tools: Any, tmp_path: Any) -> None:
    node = await bench.node()
    pod = await bench.running("echo")
    await node.ask("echo")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pod["metadata"]["deletionGracePeriodSeconds"] = 30
    bench.cluster.put("Pod", pod, "default")
    await tools.until(lambda: ("default", "echo") not in bench.cluster.objects["Pod"])
    assert (await node.ask("echo")).status == 404
    assert not (tmp_path / "one" / "pods" / pod["metadata"]["uid"]).exists()
    await tools.until(lambda: bench.cluster.events("Killing"))


async def test_a_deletion_ends_an_endless_call_after_the_grace_period(bench: Any, tools: Any) -> None:
    import asyncio

    node = await bench.node()
    pod = await bench.running("slow", LOOPS)
    call = asyncio.create_task(node.ask("slow"))
    await tools.until(
        lambda: node.kubelet.registry.worker("default", "slow").containers[0].thread.running_call
    )
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pod["metadata"]["deletionGracePeriodSeconds"] = 0
    bench.cluster.put("Pod", pod, "default")
    assert (await call).status >= 500
    await tools.until(lambda: ("default", "slow") not in bench.cluster.objects["Pod"])


async def test_a_pod_bound_elsewhere_stops_and_is_not_deleted(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("echo")
    bench.cluster.replace_pod("echo", "two")
    await tools.until(lambda: node.kubelet.registry.worker("default", "echo") is None)
    assert (await node.ask("echo")).status == 404
    assert ("DELETE", "pods/echo") not in bench.cluster.requests


async def test_a_pod_replaced_on_the_same_node_never_runs_beside_its_former_self(
    bench: Any, tools: Any
) -> None:
    node = await bench.node()
    old = await bench.running("echo")
    await node.ask("echo")
    uid = bench.cluster.replace_pod("echo", "one")["metadata"]["uid"]
    assert uid != old["metadata"]["uid"]
    await bench.until_ready("echo")
    assert (await node.ask("echo")).body == b"100"
    assert [p["metadata"]["uid"] for p in (await node.get("/pods")).json["items"]] == [uid]


async def test_a_restarted_kubelet_starts_its_pods_afresh_and_counts_it(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("echo", annotations={"kube32.io/restore-from": ""})
    await node.ask("echo")
    await bench.stop("one")
    assert ("default", "echo") in bench.cluster.objects["Pod"]
    node = await bench.node()
    await tools.until(lambda: tools.status(bench.cluster.pod("echo"))["restartCount"] == 1)
    await bench.until_ready("echo")
    assert (await node.ask("echo")).body == b"100"
    last = tools.status(bench.cluster.pod("echo"))["lastState"]["terminated"]
    assert last["exitCode"] == LIMITS.pod_exit_killed and "node restarted" in last["message"]


async def test_a_restarted_kubelet_removes_what_lost_pods_left(bench: Any, tools: Any, tmp_path: Any) -> None:
    left = tmp_path / "one" / "pods" / "gone" / "volumes"
    left.mkdir(parents=True)
    await bench.node()
    assert not left.parent.exists()


async def test_an_ended_pod_is_not_started_again_by_a_restarted_kubelet(bench: Any, tools: Any) -> None:
    await bench.node()
    bench.pod("job", entry(0), spec={"restartPolicy": "Never"})
    before = await bench.until_phase("job", "Succeeded")
    await bench.stop("one")
    node = await bench.node()
    await bench.running("other")
    assert bench.cluster.pod("job") == before
    assert (await node.ask("job")).status == 503
