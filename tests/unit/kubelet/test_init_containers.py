"""Init containers run one after the other before the others; several containers share a pod; deadlines end it."""

from typing import Any

import pytest

from kube32.contract import LIMITS, NAMES, Limits


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(pod_backoff_initial_ms=200, pod_backoff_max_ms=800)


def module(bench: Any, tools: Any, name: str, wat: str) -> None:
    bench.cluster.module(name, tools.wasm(wat))


def ends(code: int) -> str:
    return f'(module (memory (export "memory") 1) (func (export "main") (result i32) (i32.const {code})))'


def init(*images: str) -> dict[str, Any]:
    return {"initContainers": [{"name": f"init-{n}", "image": f"wasm://{i}"} for n, i in enumerate(images)]}


async def test_init_containers_end_before_the_others_begin(bench: Any, tools: Any) -> None:
    node = await bench.node()
    module(bench, tools, "good", ends(0))
    bench.pod("web", spec=init("good", "good"))
    await bench.until_ready("web")
    pod = bench.cluster.pod("web")
    states = pod["status"]["initContainerStatuses"]
    assert [s["state"]["terminated"]["reason"] for s in states] == ["Completed", "Completed"]
    assert all(s["ready"] for s in states)
    assert tools.condition(pod, "Initialized")["status"] == "True"
    first, second = (s["state"]["terminated"] for s in states)
    assert first["finishedAt"] <= second["startedAt"]
    assert (await node.ask("web")).status == 200


async def test_a_pod_waits_for_an_init_container_that_fails(bench: Any, tools: Any) -> None:
    await bench.node()
    module(bench, tools, "bad", ends(3))
    bench.pod("web", spec=init("bad"))
    await bench.until_waiting("web", "PodInitializing")
    await tools.until(
        lambda: bench.cluster.pod("web")["status"]["initContainerStatuses"][0]["restartCount"] >= 1
    )
    pod = bench.cluster.pod("web")
    assert pod["status"]["phase"] == "Pending"
    initialized = tools.condition(pod, "Initialized")
    assert (initialized["status"], initialized["reason"]) == ("False", "ContainersNotInitialized")
    assert initialized["message"] == "containers with incomplete status: [init-0]"


async def test_a_pod_that_never_restarts_fails_with_its_init_container(bench: Any, tools: Any) -> None:
    await bench.node()
    module(bench, tools, "bad", ends(3))
    bench.pod("web", spec={**init("bad"), "restartPolicy": "Never"})
    pod = await bench.until_phase("web", "Failed")
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_two_containers_run_side_by_side_and_the_first_handler_answers(bench: Any, tools: Any) -> None:
    node = await bench.node()
    module(bench, tools, "ticker", '(module (memory (export "memory") 1) (func (export "k32_tick")))')
    second = {"name": "second", "image": "wasm://ticker"}
    bench.pod("both", spec={"containers": [{"name": "main", "image": NAMES.image_embedded}, second]})
    await bench.until_ready("both")
    assert [s["ready"] for s in bench.cluster.pod("both")["status"]["containerStatuses"]] == [True, True]
    assert (await node.ask("both")).status == 200


async def test_a_pod_past_its_deadline_fails(bench: Any, tools: Any) -> None:
    node = await bench.node()
    bench.pod("late", spec={"activeDeadlineSeconds": 1})
    pod = await bench.until_phase("late", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert pod["status"]["message"] == "Pod was active on the node longer than the specified deadline"
    await tools.until(
        lambda: bench.cluster.pod("late")["status"]["containerStatuses"][0]["state"].get("terminated")
    )
    assert (await node.ask("late")).status == 503


async def test_a_deadline_may_be_set_while_the_pod_runs(bench: Any) -> None:
    await bench.node()
    pod = await bench.running("late", spec={"activeDeadlineSeconds": 3600})
    pod["spec"]["activeDeadlineSeconds"] = 1
    bench.cluster.put("Pod", pod, "default")
    assert (await bench.until_phase("late", "Failed"))["status"]["reason"] == "DeadlineExceeded"


async def test_an_init_container_that_would_never_end_is_refused(bench: Any, tools: Any) -> None:
    await bench.node()
    module(bench, tools, "stays", '(module (memory (export "memory") 1) (func (export "k32_tick")))')
    bench.pod("web", spec=init("stays"))

    def refused() -> dict[str, Any]:
        states = bench.cluster.pod("web")["status"].get("initContainerStatuses") or [{}]
        found: dict[str, Any] = states[0].get("state", {}).get("waiting", {})
        return found if found.get("reason") == "CreateContainerConfigError" else {}

    assert "has no entry point" in (await tools.until(refused))["message"]


async def test_a_request_waits_for_the_container_that_may_answer_it(bench: Any, tools: Any) -> None:
    node = await bench.node()
    module(bench, tools, "ticker", '(module (memory (export "memory") 1) (func (export "k32_tick")))')
    beside, missing = {"name": "beside", "image": "wasm://ticker"}, {"name": "main", "image": "wasm://later"}
    bench.pod("both", spec={"containers": [beside, missing]}, annotations={NAMES.ann_wasm_sha256: None})
    await tools.until(lambda: tools.status(bench.cluster.pod("both")).get("ready"))
    assert (await node.ask("both")).status == 503
    bench.cluster.module("later", tools.wasm(tools.counter))
    await bench.until_ready("both")
    assert (await node.ask("both")).body == b"100"


async def test_a_readiness_gate_is_a_condition_that_others_set(bench: Any, tools: Any) -> None:
    await bench.node()
    bench.pod("gated", spec={"readinessGates": [{"conditionType": "shop/open"}]})
    await bench.until_phase("gated", "Running")
    ready = tools.condition(bench.cluster.pod("gated"), "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    assert ready["message"] == 'corresponding condition of pod readiness gate "shop/open" does not exist.'
    pod = bench.cluster.pod("gated")
    assert tools.condition(pod, "ContainersReady")["status"] == "True"
    pod["status"]["conditions"].append({"type": "shop/open", "status": "True"})
    bench.cluster.put("Pod", pod, "default")
    await bench.until_ready("gated")
    assert tools.condition(bench.cluster.pod("gated"), "shop/open")["status"] == "True"
