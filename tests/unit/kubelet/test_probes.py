"""Probes and lifecycle hooks, by requests to the pod itself: readiness, liveness, startup, postStart."""

from typing import Any

import pytest

from kube32.contract import LIMITS, Limits
from kube32.kubelet.probes import http_call, port_of

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
# Each request takes a second and a half of the pod's time.
SLOW = """(module
  (import "env" "k32_time_ms" (func $time (result i64)))
  (memory (export "memory") 1)
  (func (export "k32_handle") (local i64)
    (local.set 0 (i64.add (call $time) (i64.const 1500)))
    (loop (br_if 0 (i64.lt_s (call $time) (local.get 0))))))"""
# Logs the path of each request, and answers 500 to /healthz.
TELLS = """(module
  (import "env" "k32_req_path" (func $path (param i32 i32) (result i32)))
  (import "env" "k32_resp_status" (func $status (param i32)))
  (import "env" "k32_log" (func $log (param i32 i32)))
  (memory (export "memory") 1)
  (func (export "k32_handle")
    (call $log (i32.const 0) (call $path (i32.const 0) (i32.const 64)))
    (if (i32.eq (i32.load8_u (i32.const 1)) (i32.const 104)) (then (call $status (i32.const 500))))))"""
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


async def test_a_probe_that_waits_too_long_fails_and_does_not_end_the_call(bench: Any, tools: Any) -> None:
    node = await bench.node()
    slow = {"livenessProbe": probe(timeoutSeconds=1, failureThreshold=30)}
    await bench.running("slow", SLOW, container=slow)
    await tools.until(lambda: bench.cluster.events("Unhealthy"))
    words = bench.cluster.events("Unhealthy")[0]["message"]
    assert words == (
        'Liveness probe failed: Get "http://127.0.0.1/healthz": context deadline exceeded '
        "(Client.Timeout exceeded while awaiting headers)"
    )
    assert (await node.ask("slow")).status == 200
    assert tools.status(bench.cluster.pod("slow"))["restartCount"] == 0


async def test_a_restored_pod_does_not_wait_for_what_its_start_would(bench: Any, tools: Any) -> None:
    await bench.node()
    await bench.node("two")
    patient = probe(initialDelaySeconds=3600)
    bench.pod("web", SWITCH, container={"startupProbe": patient, "readinessProbe": patient})
    await bench.until_phase("web", "Running")
    reply = await bench.nodes["one"].checkpoint("web", "?leave=frozen")
    bench.cluster.data["Checkpoint", "move-1"] = reply.body
    bench.cluster.replace_pod("web", "two", **{"kube32.io/restore-from": "move-1"})
    await bench.until_ready("web")
    assert tools.status(bench.cluster.pod("web"))["started"]


async def test_a_port_that_the_container_does_not_name_is_an_error_and_no_failure(
    bench: Any, tools: Any
) -> None:
    await bench.node()
    unknown = {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 1, "failureThreshold": 1}
    bench.pod("web", SWITCH, container={"livenessProbe": unknown, "readinessProbe": unknown})
    await tools.until(lambda: len(bench.cluster.events("Unhealthy")) >= 2)
    words = {e["message"] for e in bench.cluster.events("Unhealthy")}
    errored = "probe errored and resulted in unknown state: port web not found"
    assert words == {f"Liveness {errored}", f"Readiness {errored}"}
    assert {e["involvedObject"]["fieldPath"] for e in bench.cluster.events("Unhealthy")} == {
        "spec.containers{main}"
    }
    status = tools.status(bench.cluster.pod("web"))
    assert status["restartCount"] == 0 and not status["ready"]


async def test_a_tcp_probe_passes_when_the_pod_takes_requests(bench: Any, tools: Any) -> None:
    await bench.node()
    connects = {"tcpSocket": {"port": 80}, "periodSeconds": 1}
    await bench.running("web", SWITCH, container={"readinessProbe": connects})
    bench.pod("deaf", NO_HANDLER, container={"readinessProbe": connects})
    await tools.until(lambda: bench.cluster.events("Unhealthy"))
    assert tools.condition(bench.cluster.pod("deaf"), "Ready")["status"] == "False"


async def test_a_pre_stop_hook_runs_before_a_container_is_ended_for_its_health(
    bench: Any, tools: Any
) -> None:
    node = await bench.node()
    hook = {"preStop": {"httpGet": {"path": "/bye", "port": 80}}}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5}
    bench.pod("web", TELLS, container={"livenessProbe": probe(), "lifecycle": hook}, spec=spec)
    await bench.until_phase("web", "Failed")
    assert bench.cluster.events("Killing")[0]["message"] == "Container main failed liveness probe"
    assert (await node.get("/containerLogs/default/web/main")).body == b"/healthz\n/bye\n"


async def test_a_probe_is_a_request_as_the_kubelet_makes_it() -> None:
    container = {"ports": [{"name": "http", "containerPort": 8080}]}
    port = port_of(container, "http")
    assert port == 8080 and port_of(container, "81") == 81 and port_of(container, "x") is None
    call = http_call({"path": "/a b?c=d"}, "10.0.0.1", port)
    assert (call.method, call.path, call.query) == ("GET", "/a%20b", "c=d")
    headers = dict(call.headers)
    assert headers["Host"] == "10.0.0.1:8080"
    assert headers["User-Agent"].startswith("kube-probe/")
    own = [{"name": "host", "value": "shop.example"}, {"name": "X-Probe", "value": "1"}]
    assert ("host", "shop.example") in http_call({"httpHeaders": own}, "10.0.0.1", port).headers
