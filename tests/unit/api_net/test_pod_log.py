"""pods/log: parameters, containers without a log, streams that are followed."""

import asyncio
from typing import Any
from urllib.parse import parse_qs

import pytest
from aiohttp import web

from kube32.api.pod_log import handle
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS, Limits

LOG = "/api/v1/namespaces/default/pods/echo/log"


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(watch_streams=2)


class Logs:
    """A kubelet that has a log."""

    def __init__(self) -> None:
        self.path = ""
        self.query: dict[str, list[str]] = {}
        self.status = 200
        self.more = asyncio.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.path, self.query = request.path, parse_qs(request.query_string)
        if self.status != 200:
            return web.json_response({"reason": "NotFound", "message": "no log here"}, status=self.status)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write(b"line 1\n")
        if "follow" in self.query:
            await self.more.wait()
            await response.write(b"line 2\n")
        return response


async def refused(world: Any, query: str = "") -> ApiFailure:
    with pytest.raises(ApiFailure) as failure:
        await world.call(handle, "GET", f"{LOG}?{query}")
    return failure.value


async def test_a_log_is_plain_text(world: Any, read: Any) -> None:
    logs = Logs()
    await world.kubelet("devkit", logs)
    world.pod("echo", "devkit")
    response = await world.call(handle, "GET", LOG)
    assert await read(response) == b"line 1\n"
    assert response.content_type.startswith("text/plain")
    assert (logs.path, logs.query) == ("/containerLogs/default/echo/main", {})


async def test_parameters_go_on(world: Any) -> None:
    logs = Logs()
    await world.kubelet("devkit", logs)
    world.pod("echo", "devkit")
    query = "container=main&tailLines=0&sinceSeconds=5&timestamps=true&limitBytes=10&follow=false&pretty=x"
    await (await world.call(handle, "GET", f"{LOG}?{query}")).body.aclose()
    assert logs.query == {
        "tailLines": ["0"],
        "sinceSeconds": ["5"],
        "timestamps": ["true"],
        "limitBytes": ["10"],
    }
    await (await world.call(handle, "GET", f"{LOG}?sinceTime=2026-01-31T12:00:00.5%2B02:00")).body.aclose()
    assert logs.query == {"sinceTime": ["2026-01-31T12:00:00.5+02:00"]}


@pytest.mark.parametrize(
    "query",
    [
        "follow=maybe",
        "timestamps=2",
        "previous=yes",
        "tailLines=-1",
        "tailLines=1.5",
        "tailLines=x",
        "tailLines=%C2%B2",
        "tailLines=99999999999999999999",
        "sinceSeconds=0",
        "sinceSeconds=-5",
        "limitBytes=0",
        "sinceTime=yesterday",
        "sinceTime=2026-01-31",
        "sinceTime=2026-13-31T12:00:00Z",
        "sinceTime=2026-01-31T12:00:00",
        "sinceTime=2026-01-31T12:00:00Z&sinceSeconds=5",
    ],
)
async def test_a_parameter_that_is_none_is_400(world: Any, query: str) -> None:
    world.pod("echo", "devkit")
    assert (await refused(world, query)).code == 400


async def test_a_container_that_is_not_in_the_pod_is_400(world: Any) -> None:
    world.pod("echo", "devkit")
    failure = await refused(world, "container=other")
    assert (failure.code, failure.message) == (400, "container other is not valid for pod echo")


async def test_one_of_several_containers_must_be_named(world: Any) -> None:
    containers = [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]
    world.pod("echo", "devkit", containers=containers)
    failure = await refused(world)
    assert failure.message == "a container name must be specified for pod echo, choose one of: [a b]"


async def test_a_pod_that_is_not_there_is_404(world: Any) -> None:
    assert (await refused(world)).code == 404


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ([], "ContainerCreating"),
        ([{"name": "main", "state": {"waiting": {"reason": "InvalidImageName"}}}], "InvalidImageName"),
        ([{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}], "image can't be pulled"),
        (
            [{"name": "main", "state": {"waiting": {"reason": "ErrImagePull"}}}],
            "trying and failing to pull image",
        ),
    ],
)
async def test_a_container_that_waits_has_no_log_yet(world: Any, statuses: list[Any], said: str) -> None:
    pod = world.pod("echo", "devkit", phase="Pending")
    world.put("Pod", "echo", spec=pod["spec"], status={"phase": "Pending", "containerStatuses": statuses})
    failure = await refused(world)
    assert failure.code == 400
    assert failure.message == f'container "main" in pod "echo" is waiting to start: {said}'


async def test_a_pod_without_a_node_has_no_log(world: Any) -> None:
    world.pod("echo", phase="Pending")
    failure = await refused(world)
    assert (failure.code, failure.message) == (400, "pod echo does not have a host assigned")


async def test_a_container_in_back_off_has_the_log_of_its_last_run(world: Any, read: Any) -> None:
    await world.kubelet("devkit", Logs())
    pod = world.pod("echo", "devkit")
    row = {
        "name": "main",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1}},
    }
    world.put("Pod", "echo", spec=pod["spec"], status={"phase": "Running", "containerStatuses": [row]})
    assert await read(await world.call(handle, "GET", LOG)) == b"line 1\n"
    assert await read(await world.call(handle, "GET", f"{LOG}?previous=true")) == b"line 1\n"


async def test_a_container_that_never_ran_before_has_no_previous_log(world: Any) -> None:
    world.pod("echo", "devkit")
    failure = await refused(world, "previous=true")
    assert failure.message == 'previous terminated container "main" in pod "echo" not found'


async def test_a_kubelets_refusal_is_a_status(world: Any) -> None:
    logs = Logs()
    logs.status = 404
    await world.kubelet("devkit", logs)
    world.pod("echo", "devkit")
    failure = await refused(world)
    assert (failure.code, failure.message) == (404, "no log here")


async def test_a_log_that_is_followed_streams_as_it_grows(world: Any) -> None:
    logs = Logs()
    await world.kubelet("devkit", logs)
    world.pod("echo", "devkit")
    response = await world.call(handle, "GET", f"{LOG}?follow=true")
    assert await anext(response.body) == b"line 1\n"
    assert world.hub.stream_count == 1
    logs.more.set()
    assert await anext(response.body) == b"line 2\n"
    with pytest.raises(StopAsyncIteration):
        await anext(response.body)
    assert world.hub.stream_count == 0


async def test_followed_logs_are_counted_and_refused_at_the_cap(world: Any) -> None:
    logs = Logs()
    await world.kubelet("devkit", logs)
    world.pod("echo", "devkit")
    streams = [await world.call(handle, "GET", f"{LOG}?follow=true") for _ in range(2)]
    failure = await refused(world, "follow=true")
    assert (failure.code, failure.headers) == (429, {"Retry-After": "1"})
    await (await world.call(handle, "GET", LOG)).body.aclose()
    for stream in streams:
        await stream.body.aclose()
    assert world.hub.stream_count == 0
    logs.more.set()


async def test_a_followed_log_that_fails_to_open_is_not_counted(world: Any) -> None:
    world.node("devkit", 1)
    world.pod("echo", "devkit")
    assert (await refused(world, "follow=true")).code == 503
    assert world.hub.stream_count == 0
