"""pods/log: checks the parameters as Kubernetes does and streams the log from the pod's kubelet.

A log that is followed counts as a stream, as a watch does.
"""

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import orjson

from kube32.api.http import BodyCut, Request, Response
from kube32.api.kubelets import KubeletStream
from kube32.api.routes import RequestInfo
from kube32.api.status import ApiFailure, bad_request, method_not_allowed, not_found, too_many_requests
from kube32.contract import resource_of, text
from kube32.store import TooManyStreams

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

_FLAGS = ("follow", "timestamps", "previous")
_LEAST = {"tailLines": 0, "sinceSeconds": 1, "limitBytes": 1}
_TRUE = ("true", "1", "True", "TRUE", "t", "T")
_FALSE = ("false", "0", "False", "FALSE", "f", "F")
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_LARGEST = 2**63 - 1
_ERROR_BYTES = 16384


async def handle(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """The log of one container as text/plain.

    400 for bad parameters and for a container that has no log yet, 404 for no such pod, 429 when as many
    streams are open as are allowed.
    """
    if info.verb != "get":
        raise method_not_allowed()
    resource = resource_of("Pod")
    entry = server.store.get(resource.object_key(info.namespace, info.name))
    if entry is None:
        raise not_found(resource, info.name)
    query = log_query(request)
    container = choose_container(entry.obj, request.q("container"))
    check_started(entry.obj, container, previous="previous" in query)
    node = (entry.obj.get("spec") or {}).get("nodeName")
    if not node:
        raise bad_request(text("answers", "log_unassigned", pod=info.name))
    path = "/".join(quote(part, safe="") for part in ("containerLogs", info.namespace, info.name, container))
    follow = "follow" in query
    try:
        release = server.hub.take_stream() if follow else None
    except TooManyStreams as error:
        raise too_many_requests(str(error), server.limits.watch_retry_after_s) from None
    try:
        stream = await server.kubelets.request(
            node, "GET", f"/{path}", query=urlencode(query), endless=follow
        )
        if stream.status != 200:
            raise await _refused(stream)
    except BaseException:
        if release is not None:
            release()
        raise
    if release is not None:
        stream.on_close = release
    return Response(200, stream, {}, "text/plain; charset=utf-8")


def log_query(request: Request) -> dict[str, str]:
    """The query for the kubelet, checked; flags that are off are left out. ApiFailure 400."""
    query: dict[str, str] = {}
    for name in _FLAGS:
        if name not in request.query:
            continue
        value = request.q(name)
        if value in _TRUE or value == "":
            query[name] = "true"
        elif value not in _FALSE:
            raise _bad_parameter(name, value, "true or false")
    for name, least in _LEAST.items():
        if value := request.q(name):
            if not value.isascii() or not value.isdigit() or not least <= int(value[:20]) <= _LARGEST:
                raise _bad_parameter(name, value, f"a whole number of at least {least}")
            query[name] = str(int(value))
    if since := request.q("sinceTime"):
        if not _is_time(since):
            raise _bad_parameter("sinceTime", since, "a time such as 2026-01-31T12:00:00Z")
        query["sinceTime"] = since
    if "sinceTime" in query and "sinceSeconds" in query:
        raise bad_request(text("answers", "log_since_both"))
    return query


def choose_container(pod: dict[str, Any], asked: str) -> str:
    """The container that is meant: the one asked for, or the only one. ApiFailure 400."""
    spec = pod.get("spec") or {}
    name = pod["metadata"]["name"]
    names = [row["name"] for row in spec.get("containers") or []]
    initial = [row["name"] for row in spec.get("initContainers") or []]
    if asked:
        if asked not in (*names, *initial):
            raise bad_request(text("answers", "log_container", container=asked, pod=name))
        return asked
    if len(names) != 1:
        raise bad_request(text("answers", "log_choose", pod=name, containers=" ".join(names)))
    return str(names[0])


def check_started(pod: dict[str, Any], container: str, *, previous: bool) -> None:
    """Raises ApiFailure 400 when the container has no log: it never ran, or (`previous`) never ran before."""
    name = pod["metadata"]["name"]
    status = pod.get("status") or {}
    rows = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    row: dict[str, Any] = next((r for r in rows if r.get("name") == container), {})
    ran_before = bool((row.get("lastState") or {}).get("terminated"))
    if previous:
        if not ran_before:
            raise bad_request(text("answers", "log_previous", container=container, pod=name))
        return
    state = row.get("state") or {}
    if ran_before or "running" in state or "terminated" in state:
        return
    if not row and status.get("phase") not in (None, "", "Pending"):
        return
    if not (pod.get("spec") or {}).get("nodeName"):
        return
    reason = (state.get("waiting") or {}).get("reason") or text("reasons", "container_creating")
    if reason == text("reasons", "image_backoff"):
        reason = text("answers", "log_pull_backoff")
    elif reason == text("reasons", "image_pull"):
        reason = text("answers", "log_pull_failed")
    raise bad_request(text("answers", "log_waiting", container=container, pod=name, reason=reason))


async def _refused(stream: KubeletStream) -> ApiFailure:
    """A kubelet's refusal as a Status of our own."""
    try:
        body = await stream.read(_ERROR_BYTES)
        message = orjson.loads(body)["message"]
    except (BodyCut, orjson.JSONDecodeError, TypeError, KeyError):
        message = f"the kubelet answered {stream.status}"
    return ApiFailure(stream.status if stream.status >= 400 else 502, str(message))


def _is_time(value: str) -> bool:
    match = _RFC3339.fullmatch(value)
    if match is None:
        return False
    try:
        datetime.fromisoformat(match[1] + match[2].replace("Z", "+00:00"))
    except ValueError:
        return False
    return True


def _bad_parameter(name: str, value: str, rule: str) -> ApiFailure:
    return bad_request(text("answers", "log_parameter", name=name, value=value, rule=rule))
