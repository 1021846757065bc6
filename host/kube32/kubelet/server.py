"""The kubelet's HTTPS endpoints: routes them, takes none but the API server's client certificate
("Security").
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from aiohttp import web

from kube32.contract import NAMES, Limits, text
from kube32.kubelet.answers import (
    STATUS_FORBIDDEN,
    STATUS_NOT_ALLOWED,
    Refusal,
    bad_request,
    json_answer,
    not_found,
    text_answer,
)
from kube32.kubelet.checkpoint_endpoint import CheckpointEndpoint
from kube32.kubelet.log_endpoint import answer_logs
from kube32.kubelet.proxy_endpoint import answer_proxy, read_body
from kube32.kubelet.registry import Registry
from kube32.kubelet.stats import stats

_LOG = logging.getLogger(__name__)
_SHUTDOWN_S = 1.0
TakeRoutes = Callable[[bytes], Awaitable[None]]
Answer = Callable[[web.BaseRequest, list[str]], Awaitable[web.StreamResponse]]


class Credentials(Protocol):
    """What the kubelet serves with, PEM: its certificate and key, and the CA that signed the API server's."""

    @property
    def serving_cert_pem(self) -> str:
        """The serving certificate."""

    @property
    def serving_key_pem(self) -> str:
        """Its key."""

    @property
    def ca_pem(self) -> str:
        """The cluster's CA."""


def server_ssl_context(credentials: Credentials, directory: Path) -> ssl.SSLContext:
    """TLS 1.2 or later, a client certificate of the cluster's CA required."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / "serving.pem"
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600), encoding="ascii") as file:
        file.write(credentials.serving_cert_pem + "\n" + credentials.serving_key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=credentials.ca_pem)
    context.load_cert_chain(path)
    return context


class KubeletServer:
    """Listens on host and port; `port` is the bound one after `start`, which raises OSError when it is
    taken.
    """

    def __init__(
        self,
        registry: Registry,
        checkpoints: CheckpointEndpoint,
        limits: Limits,
        context: ssl.SSLContext,
        take_routes: TakeRoutes | None = None,
        remove_claim: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.port = 0
        self._take_routes = take_routes
        self._remove_claim = remove_claim
        self._registry = registry
        self._checkpoints = checkpoints
        self._limits = limits
        self._context = context
        self._runner: web.ServerRunner | None = None
        # First segment of the path: methods ((), any), number of further segments, handler.
        self._routes: dict[str, tuple[tuple[str, ...], int, Answer]] = {
            "healthz": (("GET",), 0, self._healthz),
            "pods": (("GET",), 0, self._pods),
            "checkpoint": (("POST",), 3, checkpoints.checkpoint),
            "thaw": (("POST",), 3, checkpoints.thaw),
            "containerLogs": (("GET",), 3, self._logs),
            "events": (("POST",), 2, self._events),
            "routes": (("PUT",), 0, self._put_routes),
            "stats": (("GET",), 0, self._stats),
            "claims": (("DELETE",), 1, self._claims),
        }

    async def start(self, host: str, port: int) -> None:
        """Binds and serves."""
        server = web.Server(
            self._handle,
            access_log=None,
            max_line_size=self._limits.api_url_bytes,
            max_field_size=self._limits.api_header_bytes,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Closes every connection."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            self._check_certificate(request)
            return await self._route(request)
        except Refusal as refusal:
            return refusal.answer()
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        except Exception:
            _LOG.exception("%s %s", request.method, request.rel_url.raw_path)
            return text_answer("internal error", 500)

    def _check_certificate(self, request: web.BaseRequest) -> None:
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        names = [
            value
            for part in (certificate or {}).get("subject", ())
            for key, value in part
            if key == "commonName"
        ]
        if names != [NAMES.user_apiserver]:
            raise Refusal(STATUS_FORBIDDEN, "Forbidden", text("answers", "api_server_only"))

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        first, _, rest = path.removeprefix("/").partition("/")
        if first == "proxy":
            return await answer_proxy(request, rest, self._registry, self._limits)
        segments = [unquote(s) for s in rest.split("/")] if rest else []
        route = self._routes.get(first)
        if route is None or len(segments) != route[1]:
            raise not_found(text("answers", "path_unknown", path=path))
        methods, _, handler = route
        if request.method not in methods:
            message = text("answers", "method_unknown", path=path, allowed=", ".join(methods))
            raise Refusal(STATUS_NOT_ALLOWED, "MethodNotAllowed", message)
        return await handler(request, segments)

    async def _healthz(self, request: web.BaseRequest, segments: list[str]) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _pods(self, request: web.BaseRequest, segments: list[str]) -> web.StreamResponse:
        return json_answer(
            {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self._registry.pods()}
        )

    async def _logs(self, request: web.BaseRequest, segments: list[str]) -> web.StreamResponse:
        worker, container = self._registry.container(*segments)
        return await answer_logs(request, worker, container, self._limits)

    async def _claims(self, request: web.BaseRequest, segments: list[str]) -> web.StreamResponse:
        """The data of a claim that is gone: nobody uses it any more."""
        if self._remove_claim is not None:
            try:
                await self._remove_claim(segments[0])
            except ValueError as error:
                raise bad_request(str(error)) from None
        return json_answer({})

    async def _stats(self, request: web.BaseRequest, segments: list[str]) -> web.StreamResponse:
        return json_answer(stats(self._registry))

    async def _put_routes(self, request: web.BaseRequest, segments: list[str]) -> web.StreamResponse:
        """The control plane's route table for the listeners of this node."""
        if self._take_routes is None:
            raise not_found(text("answers", "path_unknown", path="/routes"))
        data = await read_body(request, self._limits.routes_bytes, self._limits)
        try:
            await self._take_routes(data)
        except ValueError as error:
            raise bad_request(str(error)) from None
        return json_answer({})

    async def _events(self, request: web.BaseRequest, segments: list[str]) -> web.StreamResponse:
        namespace, topic = segments
        if not topic or len(topic.encode()) > self._limits.pod_topic_bytes:
            rule = f"1 to {self._limits.pod_topic_bytes} bytes"
            raise bad_request(
                text("answers", "query_invalid", name="topic", rule=rule, value=repr(topic[:200]))
            )
        payload = await read_body(request, self._limits.pod_payload_bytes, self._limits)
        delivered = self._registry.deliver(namespace, topic, payload, request.query.get("pod", ""))
        return json_answer({"delivered": delivered})
