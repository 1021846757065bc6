"""Probes and lifecycle hooks, by requests to the pod itself: readiness, liveness, startup, postStart."""

from typing import Any

import pytest

from kube32.contract import LIMITS, Limits

# Answers with the status in its first word of memory, which /set<digit> changes: 2 is 200, 5 is 500.
SWITCH = """(module
  (import "env" "k32_req_path" (func $path (param i32 i32) (result i32)))
  (import "env" "k32_resp_status" (func $status (param i32)))
  (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "2")
  (func (export "k32_handle")
    (drop (call $path (i32.const 16) (i32.const 32)))
    (if (i32.eq (i32.load8_u (i32.const 17)) (i32.const 115))
      (then
        (i32.store8 (i32.const 0) (i32.load8_u (i32.const 20)))
        (return)))
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 53))
      (then (call $status (i32.const 500))))
    (drop (call $write (i32.const 0) (i32.const 1)))))"""
NO_HANDLER = '(module (memory (export "memory") 1) (func (export "k32_tick")))'


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(pod_backoff_initial_ms=200, pod_backoff_max_ms=800)


def probe(**more: Any) -> dict[str, Any]:
    return {"httpGet": {"path": "/healthz", "port": 80}, "periodSeconds": 1, "failureThreshold": 1, **more}


async def test_a_pod_is_ready_when_its_probe_says_so_and_no_longer_when_it_does_not(
    bench: Any, tools: Any
) -> None:
    node = await bench.node()
    await bench.running("web", SWITCH, container={"readinessProbe": probe()})
    await node.ask("web", "/set5")
    await tools.until(lambda: tools.condition(bench.cluster.pod("web"), "Ready")["status"] == "False")
    pod = bench.cluster.pod("web")
    assert tools.condition(pod, "Ready")["reason"] == "ContainersNotReady"
    assert not tools.status(pod)["ready"] and tools.status(pod)["started"]
    await tools.until(lambda: bench.cluster.events("Unhealthy"))
    words = bench.cluster.events("Unhealthy")[0]["message"]
    assert words == "Readiness probe failed: HTTP probe failed with statuscode: 500"
    await node.ask("web", "/set2")
    await bench.until_ready("web")
    assert tools.status(bench.cluster.pod("web"))["restartCount"] == 0


async def test_a_pod_with_a_readiness_probe_runs_before_it_is_ready(bench: Any, tools: Any) -> None:
    await bench.node()
    bench.pod("web", SWITCH, container={"readinessProbe": probe(initialDelaySeconds=1)})
    pod = await bench.until_phase("web", "Running")
    assert tools.condition(pod, "Ready")["status"] == "False"
    await bench.until_ready("web")


async def test_a_failed_liveness_probe_restarts_the_container(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("web", SWITCH, container={"livenessProbe": probe()})
    await node.ask("web", "/set5")
    await tools.until(lambda: tools.status(bench.cluster.pod("web"))["restartCount"] == 1)
    last = tools.status(bench.cluster.pod("web"))["lastState"]["terminated"]
    assert (last["reason"], last["exitCode"]) == ("Error", LIMITS.pod_exit_killed)
    await tools.until(lambda: bench.cluster.events("Killing"))
    words = bench.cluster.events("Killing")[0]["message"]
    assert words == "Container main failed liveness probe, will be restarted"
    await bench.until_ready("web")


async def test_liveness_waits_for_startup(bench: Any, tools: Any) -> None:
    await bench.node()
    startup = probe(initialDelaySeconds=1, failureThreshold=30)
    bench.pod("web", SWITCH, container={"startupProbe": startup, "livenessProbe": probe()})
    pod = await bench.until_phase("web", "Running")
    assert not tools.status(pod)["started"]
    await bench.until_ready("web")
    assert tools.status(bench.cluster.pod("web"))["started"]


async def test_a_pod_without_a_handler_never_becomes_ready(bench: Any, tools: Any) -> None:
    await bench.node()
    bench.pod("deaf", NO_HANDLER, container={"readinessProbe": probe()})
    await tools.until(lambda: bench.cluster.events("Unhealthy"))
    words = bench.cluster.events("Unhealthy")[0]["message"]
    assert words == "Readiness probe failed: the pod does not export k32_handle"
    assert tools.condition(bench.cluster.pod("deaf"), "Ready")["status"] == "False"


async def test_a_frozen_pod_is_not_probed(bench: Any, tools: Any) -> None:
    node = await bench.node()
    await bench.running("web", SWITCH, container={"livenessProbe": probe()})
    await node.checkpoint("web", "?leave=frozen")
    await tools.until(lambda: tools.condition(bench.cluster.pod("web"), "Ready").get("reason") == "Frozen")
    # Longer than a period: a probe that was made would have failed and restarted the container.
    await tools.pause(1.5)
    await node.thaw("web")
    await bench.until_ready("web")
    assert tools.status(bench.cluster.pod("web"))["restartCount"] == 0


async def test_a_post_start_hook_that_fails_ends_the_container(bench: Any, tools: Any) -> None:
    await bench.node()
    hook = {"postStart": {"httpGet": {"path": "/x", "port": 80}}}
    bench.pod("deaf", NO_HANDLER, container={"lifecycle": hook})
    await tools.until(lambda: bench.cluster.events("FailedPostStartHook"))
    await tools.until(lambda: tools.status(bench.cluster.pod("deaf"))["restartCount"] >= 1)
