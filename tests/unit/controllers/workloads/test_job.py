"""Jobs: completions, failures, suspension, indexes, deadlines, and that each pod counts exactly once."""

import asyncio
from typing import Any

import pytest
from tests.unit.controllers.peers import Obj, running
from tests.unit.controllers.workloads.world import World, job

from kube32.contract import LIMITS

FINALIZER = "batch.kubernetes.io/job-tracking"
SOON = LIMITS.replace(job_backoff_initial_ms=50)


async def quickly(world: World) -> None:
    """Back-offs of a twentieth of a second."""
    await world.cell._controllers[-1].stop()
    await world.cell.start(SOON)


async def active(world: World, count: int) -> list[Obj]:
    """The Job's pods once so many run."""

    def check() -> list[Obj] | None:
        found = [p for p in world.alive(work="work") if p["status"].get("phase") == "Running"]
        return found if len(found) == count and world.status("Job", "work").get("active") == count else None

    found: list[Obj] = await world.until(check)
    return found


async def over(world: World, condition: str) -> Obj:
    await world.until(lambda: world.condition(condition, "Job", "work").get("status") == "True")
    return world.status("Job", "work")


async def test_a_job_runs_until_enough_pods_have_succeeded(world: World) -> None:
    made = await world.create(job(completions=3, parallelism=2))
    first = await active(world, 2)
    for pod in first:
        labels = pod["metadata"]["labels"]
        assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == "work"
        assert labels["batch.kubernetes.io/controller-uid"] == made["metadata"]["uid"]
        assert FINALIZER in pod["metadata"]["finalizers"]
        await world.finish(pod)
    await world.finish((await active(world, 1))[0])
    status = await over(world, "Complete")
    assert status["succeeded"] == 3 and "active" not in status and "uncountedTerminatedPods" not in status
    assert status["startTime"] and status["completionTime"]
    reasons = {c["type"]: (c["reason"], c["message"]) for c in status["conditions"]}
    reached = "CompletionsReached", "Reached expected number of succeeded pods"
    assert reasons == {"SuccessCriteriaMet": reached, "Complete": reached}
    await world.until(lambda: all(FINALIZER not in p["metadata"].get("finalizers", []) for p in world.pods()))
    told = await world.told("work")
    assert [r for r, _ in told] == ["SuccessfulCreate"] * 3 + ["Completed"]
    assert told[-1][1] == "Job completed"
    assert len(world.pods(work="work")) == 3


async def test_without_completions_the_job_is_done_when_one_succeeded_and_the_rest_has_ended(
    world: World,
) -> None:
    await world.create(job(parallelism=3))
    pods = await active(world, 3)
    await world.finish(pods[0])
    await active(world, 2)
    await world.finish(pods[1])
    await world.finish(pods[2], "Failed", 1)
    status = await over(world, "Complete")
    assert (status["succeeded"], status["failed"]) == (2, 1)


async def test_failures_beyond_the_limit_fail_the_job_and_end_its_pods(world: World) -> None:
    await quickly(world)
    await world.create(job(completions=2, parallelism=2, backoffLimit=1))
    for _ in range(2):
        await world.finish((await active(world, 2))[0], "Failed", 3)
    status = await over(world, "Failed")
    reasons = {c["type"]: (c["reason"], c["message"]) for c in status["conditions"]}
    words = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    assert reasons == {"FailureTarget": words, "Failed": words}
    assert status["failed"] == 3 and "active" not in status
    assert words in await world.told("work")
    await world.until(lambda: not world.alive(work="work"))


async def test_a_failed_pod_is_replaced_after_a_delay_that_grows(world: World) -> None:
    await world.cell._controllers[-1].stop()
    await world.cell.start(LIMITS.replace(job_backoff_initial_ms=200))
    await world.create(job(backoffLimit=5))
    times = []
    for _ in range(2):
        pod = (await active(world, 1))[0]
        began = world.now()
        await world.finish(pod, "Failed", 1)
        await world.until(lambda: world.alive(work="work"))
        times.append(world.now() - began)
    assert times[0] >= 0.2 and times[1] >= 0.4


async def test_restarts_count_as_failures_with_on_failure(world: World) -> None:
    await world.create(job(backoffLimit=2, restartPolicy="OnFailure"))
    pod = (await active(world, 1))[0]
    status = running(pod)
    status["containerStatuses"][0]["restartCount"] = 2
    await world.cell.set_status(pod, status)
    assert (await over(world, "Failed"))["conditions"][-1]["reason"] == "BackoffLimitExceeded"


async def test_a_deadline_ends_the_job(world: World) -> None:
    await world.create(job(activeDeadlineSeconds=1))
    await active(world, 1)
    status = await over(world, "Failed")
    failed = next(c for c in status["conditions"] if c["type"] == "Failed")
    assert failed["reason"] == "DeadlineExceeded"
    assert failed["message"] == "Job was active longer than specified deadline"
    assert status["failed"] == 1


async def test_a_suspended_job_has_no_pods_and_begins_again(world: World) -> None:
    await world.create(job(suspend=True))
    await world.until(lambda: world.condition("Suspended", "Job", "work").get("status") == "True")
    assert not world.pods() and "startTime" not in world.status("Job", "work")
    await world.patch("Job", {"spec": {"suspend": False}}, "work")
    await active(world, 1)
    assert world.condition("Suspended", "Job", "work")["reason"] == "JobResumed"
    await world.patch("Job", {"spec": {"suspend": True}}, "work")
    await world.until(lambda: not world.pods())
    assert "failed" not in world.status("Job", "work")
    await world.patch("Job", {"spec": {"suspend": False}}, "work")
    await world.finish((await active(world, 1))[0])
    await over(world, "Complete")
    told = [r for r, _ in await world.told("work")]
    assert told.count("Suspended") == told.count("Resumed") == 1  # which count two each


async def test_each_index_is_done_once_and_tells_its_pod_its_number(world: World) -> None:
    await quickly(world)
    await world.create(job(completions=4, parallelism=2, completionMode="Indexed"))
    pods = await active(world, 2)
    for index, pod in enumerate(pods):
        meta = pod["metadata"]
        assert meta["name"].startswith(f"work-{index}-") and pod["spec"]["hostname"] == f"work-{index}"
        assert meta["annotations"]["batch.kubernetes.io/job-completion-index"] == str(index)
        assert meta["labels"]["batch.kubernetes.io/job-completion-index"] == str(index)
        env = pod["spec"]["containers"][0]["env"][0]
        assert env["name"] == "JOB_COMPLETION_INDEX" and "fieldRef" in env["valueFrom"]
    await world.finish(pods[0], "Failed", 1)
    await world.finish(pods[1])
    await world.until(lambda: world.status("Job", "work").get("completedIndexes") == "1")
    for _ in range(3):
        await world.finish((await world.until(lambda: running_pods(world)))[0])
    status = await over(world, "Complete")
    assert (status["succeeded"], status["failed"], status["completedIndexes"]) == (4, 1, "0-3")


def running_pods(world: World) -> list[Obj]:
    return [p for p in world.alive(work="work") if p["status"].get("phase") == "Running"]


async def test_fewer_wanted_pods_end_some_and_count_none_as_failed(world: World) -> None:
    await world.create(job(completions=5, parallelism=3))
    await active(world, 3)
    await world.patch("Job", {"spec": {"parallelism": 1}}, "work")
    await active(world, 1)
    await world.until(lambda: len(world.pods(work="work")) == 1)
    assert "failed" not in world.status("Job", "work")


async def test_a_pod_that_somebody_deletes_counts_as_failed_and_is_replaced(world: World) -> None:
    await quickly(world)
    await world.create(job())
    pod = (await active(world, 1))[0]
    await world.client.delete("Pod", pod["metadata"]["name"], "default")
    await world.until(lambda: world.status("Job", "work").get("failed") == 1)
    again = (await active(world, 1))[0]
    assert again["metadata"]["uid"] != pod["metadata"]["uid"]
    await world.until(lambda: len(world.pods(work="work")) == 1)


async def test_pods_that_end_and_are_deleted_while_no_controller_runs_are_counted_once(world: World) -> None:
    await world.create(job(completions=4, parallelism=3))
    pods = await active(world, 3)
    await world.cell._controllers[-1].stop()
    for pod in pods[:2]:
        await world.finish(pod)
        await world.client.delete("Pod", pod["metadata"]["name"], "default", grace_s=0)
    assert len(world.pods(work="work")) == 3  # the finalizer keeps them
    await world.cell.start()
    await world.until(lambda: world.status("Job", "work").get("succeeded") == 2)
    await world.until(lambda: len(running_pods(world)) == 2)


@pytest.mark.parametrize("writes", range(1, 7))
async def test_a_controller_that_stops_anywhere_in_its_counting_counts_no_pod_twice(
    world: World, writes: int
) -> None:
    """Cut off after each write that follows the end of two pods."""
    await quickly(world)
    await world.create(job(completions=3, parallelism=3))
    pods = await active(world, 3)
    await world.cell._controllers[-1].stop()
    for pod in pods[:2]:
        await world.finish(pod)
    left = writes
    stopped = asyncio.Event()

    async def cut(method: str, path: str) -> None:
        nonlocal left
        about = "/jobs/" in path or ("/pods/" in path and "routes" not in path)
        if method in ("PUT", "PATCH") and about:
            if left <= 0:
                stopped.set()
                await asyncio.Event().wait()
            left -= 1

    world.cell.transport.before = cut
    controllers = await world.cell.start(SOON)
    done = asyncio.create_task(world.until(lambda: world.status("Job", "work").get("succeeded") == 2))
    await asyncio.wait([done, asyncio.create_task(stopped.wait())], return_when=asyncio.FIRST_COMPLETED)
    await controllers.stop()
    world.cell.transport.before = None
    await world.cell.start(SOON)
    await done
    await world.finish((await active(world, 1))[0])
    assert (await over(world, "Complete"))["succeeded"] == 3


async def test_a_finished_job_goes_when_its_time_is_over(world: World) -> None:
    await world.create(job(ttlSecondsAfterFinished=1))
    await world.finish((await active(world, 1))[0])
    await over(world, "Complete")
    await world.until(lambda: not world.get("Job", "work")["metadata"])
    await world.until(lambda: not world.pods(work="work"))


async def test_a_wall_clock_that_jumps_ends_no_finished_job(world: World, monkeypatch: Any) -> None:
    await world.create(job(ttlSecondsAfterFinished=3600))
    await world.finish((await active(world, 1))[0])
    await over(world, "Complete")
    monkeypatch.setattr("kube32.controllers.objects.seconds_since", lambda stamp: 1e9)
    await world.patch("Job", {"metadata": {"labels": {"look": "again"}}}, "work")
    with pytest.raises(TimeoutError):
        await world.until(lambda: not world.get("Job", "work")["metadata"], seconds=0.3)


async def test_a_deleted_job_leaves_no_pod_behind_that_waits_to_be_counted(world: World) -> None:
    await world.create(job(parallelism=2))
    await active(world, 2)
    await world.client.delete("Job", "work", "default", propagation="Background")
    await world.until(lambda: not world.pods(work="work"))


async def test_pods_that_outlive_their_job_keep_no_finalizer(world: World) -> None:
    await world.create(job())
    await active(world, 1)
    await world.client.delete("Job", "work", "default", propagation="Orphan")
    await world.until(lambda: not world.get("Job", "work")["metadata"])
    await world.until(lambda: all(FINALIZER not in p["metadata"].get("finalizers", []) for p in world.pods()))
    assert len(world.alive(work="work")) == 1


async def test_a_failure_policy_ends_the_job_or_lets_a_failure_pass(world: World) -> None:
    await quickly(world)
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
    await world.create(job(podFailurePolicy={"rules": rules}, backoffLimit=0))
    pod = (await active(world, 1))[0]
    disrupted = [{"type": "DisruptionTarget", "status": "True", "reason": "x"}]
    await world.finish(pod, "Failed", 1, conditions=disrupted)
    pod = (await active(world, 1))[0]
    assert "failed" not in world.status("Job", "work")
    await world.finish(pod, "Failed", 42)
    status = await over(world, "Failed")
    failed = next(c for c in status["conditions"] if c["type"] == "Failed")
    name = pod["metadata"]["name"]
    expected = (
        f"Container main for pod default/{name} failed with exit code 42 matching FailJob rule at index 1"
    )
    assert (failed["reason"], failed["message"]) == ("PodFailurePolicy", expected)
    assert ("PodFailurePolicy", expected) in await world.told("work")


async def test_a_success_policy_ends_the_job_before_all_is_done(world: World) -> None:
    policy = {"rules": [{"succeededIndexes": "0"}]}
    await world.create(job(completions=3, parallelism=3, completionMode="Indexed", successPolicy=policy))
    await world.finish((await active(world, 3))[0])
    status = await over(world, "Complete")
    complete = next(c for c in status["conditions"] if c["type"] == "Complete")
    assert (complete["reason"], complete["message"]) == ("SuccessPolicy", "Matched rules at index 0")
    assert status["completedIndexes"] == "0"
    await world.until(lambda: not world.alive(work="work"))


async def test_a_job_of_another_manager_is_left_alone(world: World) -> None:
    await world.create(job(managedBy="example.com/other"))
    await world.create(job("own"))
    await world.until(lambda: world.alive(work="own"))
    assert not world.pods(work="work") and not world.status("Job", "work")


async def test_an_index_that_fails_too_often_leaves_the_others_to_go_on(world: World) -> None:
    await quickly(world)
    await world.create(job(completions=3, parallelism=3, completionMode="Indexed", backoffLimitPerIndex=1))
    await active(world, 3)

    def of(index: int) -> list[Obj]:
        return [p for p in running_pods(world) if p["metadata"]["name"].startswith(f"work-{index}-")]

    for failures in range(2):
        pod = (await world.until(lambda: of(1)))[0]
        assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == str(failures)
        await world.finish(pod, "Failed", 1)
    await world.until(lambda: world.status("Job", "work").get("failedIndexes") == "1")
    assert len(of(0)) == len(of(2)) == 1
    await world.finish(of(0)[0])
    await world.finish(of(2)[0])
    status = await over(world, "Failed")
    failed = next(c for c in status["conditions"] if c["type"] == "Failed")
    assert (failed["reason"], failed["message"]) == ("FailedIndexes", "Job has failed indexes")
    assert ("FailedIndexes", "Job has failed indexes") in await world.told("work")
    assert (status["completedIndexes"], status["failedIndexes"]) == ("0,2", "1")
    assert (status["succeeded"], status["failed"]) == (2, 2)
    await world.until(lambda: all(FINALIZER not in p["metadata"].get("finalizers", []) for p in world.pods()))


async def test_a_rule_may_give_up_an_index_at_once_and_too_many_of_them_the_job(world: World) -> None:
    rules = [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [9]}}]
    await world.create(
        job(
            completions=3,
            parallelism=3,
            completionMode="Indexed",
            backoffLimitPerIndex=5,
            maxFailedIndexes=1,
            podFailurePolicy={"rules": rules},
        )
    )
    pods = await active(world, 3)
    for pod in pods[:2]:
        await world.finish(pod, "Failed", 9)
    status = await over(world, "Failed")
    failed = next(c for c in status["conditions"] if c["type"] == "Failed")
    assert failed["reason"] == "MaxFailedIndexesExceeded" and status["failedIndexes"] == "0-1"
    await world.until(lambda: not world.alive(work="work"))
