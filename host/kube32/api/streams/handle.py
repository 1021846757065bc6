"""pods/portforward, pods/exec and pods/attach: which protocol the client asks for, and who serves it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kube32.api import proxy
from kube32.api.adapter import Front
from kube32.api.http import Request, Response, failure_response
from kube32.api.routes import RequestInfo
from kube32.api.status import ApiFailure, bad_request, too_many_requests
from kube32.api.streams.channel import Channel, Upgrade
from kube32.api.streams.portforward import Forward, serve_channels
from kube32.api.streams.refusal import refuse_on_spdy, refuse_on_websocket
from kube32.contract import offers, resource_of, text

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

_SPDY = "SPDY/3.1"
_FORWARD = "portforward.k8s.io"
_TUNNEL = f"{_SPDY}+{_FORWARD}"
_CHANNELS = (
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
)
_FORWARD_CHANNELS = "v4.channel.k8s.io"
_MOST_PORTS = 64


async def port_forward(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """Forwards connections to a running pod, over WebSocket or SPDY. ApiFailure 400, 404, 405, 429, 503."""
    if not offers(server.limits.profile, "port_forward"):
        path = resource_of("Pod").object_path(info.namespace, info.name, "proxy/")
        raise ApiFailure(405, text("answers", "port_forward_refused", path=path))
    kind, offered = _asked(request)
    proxy.running_on(server, info.namespace, info.name)
    protocol = next((p for p in (_TUNNEL, _FORWARD, _FORWARD_CHANNELS) if p in offered), "")
    if not protocol or (kind == _SPDY) != (protocol == _FORWARD):
        raise bad_request(f"unable to upgrade: unable to negotiate protocol: client supports {offered}")
    ports = _ports(request) if protocol == _FORWARD_CHANNELS else []
    if server.forwards >= server.limits.port_forwards:
        raise too_many_requests(text("answers", "port_forwards", limit=server.limits.port_forwards))
    front = Front(_pod_dispatch(server, info), server.limits, remote=False)

    async def serve(channel: Channel) -> None:
        server.forwards += 1
        try:
            if protocol == _FORWARD_CHANNELS:
                await serve_channels(channel, ports, front.connections, server.limits)
            else:
                await Forward(channel, front.connections, server.limits).run()
        finally:
            server.forwards -= 1

    return Upgrade(101, b"", kind=kind, protocol=protocol, serve=serve)


async def refuse(server: "ApiServer", request: Request, info: RequestInfo) -> Response:
    """exec and attach: why not, said in the client's protocol; a plain request gets it as its Status."""
    proxy.existing_pod(server, info.namespace, info.name)
    failure = ApiFailure(405, text("answers", "exec_refused"))
    try:
        kind, offered = _asked(request)
    except ApiFailure:
        raise failure from None
    # SPDY clients list the newest version first, WebSocket clients too.
    protocol = next((p for p in offered if p in _CHANNELS), "")
    if kind == _SPDY:
        streams = 1 + sum(request.flag(name) for name in ("stdin", "stdout"))
        streams += 1 if request.flag("tty") or request.flag("stderr") else 0

        async def serve(channel: Channel) -> None:
            await refuse_on_spdy(channel, failure, protocol, streams)

    else:
        if not protocol:
            raise failure

        async def serve(channel: Channel) -> None:
            await refuse_on_websocket(channel, failure, protocol)

    return Upgrade(101, b"", kind=kind, protocol=protocol, serve=serve)


def _asked(request: Request) -> tuple[str, list[str]]:
    """The protocol to change to and the subprotocols on offer; ApiFailure 400 for none."""
    headers = request.headers
    asked = headers.get("Upgrade", "").strip()
    if "upgrade" in headers.get("Connection", "").lower():
        if asked.lower() == "websocket":
            return "websocket", _listed(headers, "Sec-WebSocket-Protocol")
        if asked.upper() == _SPDY:
            return _SPDY, _listed(headers, "X-Stream-Protocol-Version")
    raise bad_request("unable to upgrade: missing upgrade headers in request")


def _listed(headers: Mapping[str, str], name: str) -> list[str]:
    getall = getattr(headers, "getall", None)
    values = getall(name, []) if getall is not None else [headers.get(name, "")]
    return [part for value in values for p in value.split(",") if (part := p.strip())]


def _ports(request: Request) -> list[int]:
    found = [p for value in request.query.get("ports", ()) for p in value.split(",")]
    if not found:
        raise bad_request('query parameter "ports" is required')
    if len(found) > _MOST_PORTS:
        raise bad_request(f'query parameter "ports" has {len(found)} ports, at most {_MOST_PORTS} are taken')
    for port in found:
        if not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
            raise bad_request(f'query parameter "ports" has "{port[:20]}", which is no port')
    return [int(port) for port in found]


def _pod_dispatch(server: "ApiServer", info: RequestInfo) -> "_Dispatch":
    return _Dispatch(server, info)


class _Dispatch:
    """Requests that come through a forwarded connection, sent to the pod."""

    def __init__(self, server: "ApiServer", info: RequestInfo) -> None:
        self._server = server
        self._info = info

    async def __call__(self, request: Request) -> Response:
        info = RequestInfo(
            "get",
            resource_of("Pod"),
            "proxy",
            self._info.namespace,
            self._info.name,
            request.path.removeprefix("/"),
            has_rest=True,
        )
        try:
            return await proxy.pod_proxy(self._server, request, info)
        except ApiFailure as failure:
            return failure_response(failure)
