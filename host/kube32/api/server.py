"""The API server: who asks, what for, may they, and the handler that answers. Sockets are the adapter's."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from kube32.api import (
    checkpoint_data,
    create,
    crud,
    delete,
    discovery,
    get,
    ingress_classes,
    join,
    metrics,
    modules,
    namespaces,
    node_samples,
    openapi,
    patch,
    pod_log,
    pods,
    proxy,
    routes,
    scale,
    service_proxy,
    services,
    topics,
    update,
    watch,
)
from kube32.api import list as listing
from kube32.api.catalog import Catalog
from kube32.api.computed import Views
from kube32.api.custom.kinds import CustomKinds
from kube32.api.http import Request, Response, failure_response
from kube32.api.identity import issuer, token_requests, user_requests
from kube32.api.kubelets import KubeletConnector
from kube32.api.modules import ModuleStore
from kube32.api.rbac import reviews
from kube32.api.routes import RequestInfo
from kube32.api.security import Security
from kube32.api.snapshot_pool import SnapshotPool
from kube32.api.status import ApiFailure, internal, method_not_allowed, no_such_path, storage_full
from kube32.api.streams import handle as streams
from kube32.contract import COMPUTED, METRICS, REVIEW, Limits, Resource
from kube32.store import JournalFailed, ReadingStore, StorageFull, Store, WatchHub

_log = logging.getLogger(__name__)
_HEALTH = ("/healthz", "/livez", "/readyz")
_STREAMS: dict[str, Callable[["ApiServer", Request, RequestInfo], Awaitable[Response]]] = {
    "exec": streams.refuse,
    "attach": streams.refuse,
    "portforward": streams.port_forward,
}

Handler = Callable[["ApiServer", Request, RequestInfo], Awaitable[Response]]
CallHandler = Callable[[crud.Call], Awaitable[Response]]

# Subresources with a handler of their own, by kind and name. All others read and write the object.
_SUBRESOURCES: dict[tuple[str, str], Handler] = {
    ("Pod", "log"): pod_log.handle,
    ("Pod", "proxy"): proxy.pod_proxy,
    ("Node", "proxy"): proxy.node_proxy,
    ("Service", "proxy"): service_proxy.handle,
    ("Checkpoint", "data"): checkpoint_data.handle,
    ("Module", "data"): modules.handle,
    ("ServiceAccount", "token"): token_requests.handle,
}
_VIRTUAL: dict[str, Handler] = {
    "join": join.handle,
    "topics": topics.handle,
    "bindings": pods.bind_older,
    "users": user_requests.handle,
}
_POD_WRITES: dict[str, CallHandler] = {"binding": pods.bind, "replacement": pods.replace}
_WRITES: dict[str, CallHandler] = {
    "create": create.handle,
    "update": update.handle,
    "patch": patch.handle,
    "delete": delete.handle,
    "deletecollection": delete.handle_collection,
}


class ApiServer:
    """Answers requests over a store. `start` before the first one; `close` ends all streams."""

    def __init__(
        self,
        *,
        store: Store,
        hub: WatchHub,
        limits: Limits,
        security: Security,
        data_dir: Path,
        kubelets: KubeletConnector,
        pool: SnapshotPool,
        modules: ModuleStore,
    ) -> None:
        self.store = store
        self.hub = hub
        self.limits = limits
        self.catalog = Catalog(limits.profile)
        self.custom_kinds = CustomKinds(store, hub, self.catalog)
        self.security = security
        self.data_dir = data_dir
        self.kubelets = kubelets
        self.pool = pool
        self.modules = modules
        self.forwards = 0
        self.sampler = node_samples.Sampler(self)
        self.turns = service_proxy.Turns()
        self.views = Views(store)
        self._computed = WatchHub(self.views.store, limits, places=hub)
        self._ready = False
        self._end_own_service: Callable[[], None] = _nothing
        security.bind(store)

    async def start(self) -> None:
        """Makes the objects that every cluster has; /readyz is ok from then on."""
        namespaces.bootstrap(self.store)
        self._end_own_service = services.bootstrap(self.store)
        ingress_classes.bootstrap(self.store)
        self.custom_kinds.start()
        self.security.bootstrap()
        self.views.start(asyncio.get_running_loop())
        await self.store.settle()
        self._ready = True

    async def close(self) -> None:
        """Ends all watches and the connections to kubelets."""
        self._ready = False
        self._end_own_service()
        await self.custom_kinds.close()
        self.hub.close()
        self._computed.close()
        self.views.close()
        await self.kubelets.close()

    def reader(self, resource: Resource) -> tuple[ReadingStore, WatchHub]:
        """Where a kind is read and watched."""
        if resource.storage == COMPUTED:
            return self.views.store, self._computed
        return self.store.settled, self.hub

    async def dispatch(self, request: Request) -> Response:
        """The answer to a request. It never raises: every failure is a Status."""
        try:
            response = await self._answer(request)
            if request.method not in ("GET", "HEAD"):
                await self.store.settle()
            return response
        except ApiFailure as failure:
            return failure_response(failure)
        except StorageFull as error:
            return failure_response(storage_full(error.message))
        except JournalFailed as error:
            return failure_response(internal(error.message))
        except Exception as error:
            _log.exception("%s %s failed", request.method, request.path)
            return failure_response(internal(f"{type(error).__name__}: {error}"))

    async def _answer(self, request: Request) -> Response:
        path = request.path
        if path in _HEALTH:
            return self._health(request)
        user = request.user = self.security.authenticate(request)
        plain = request.method == "GET" and not request.query_string
        catalog = self.catalog
        if plain:
            info = routes.parse_get(path, catalog, catalog.generation)
        else:
            info = routes.parse(request.method, path, request.query, catalog)
        self.security.authorize(user, info, request)
        if not info.is_resource:
            keys = issuer.handle(self, path) if request.method == "GET" else None
            return keys or _document(request, catalog)
        if plain and info.verb == "get" and not info.subresource:
            found = get.stored(self.reader(info.resource)[0], request, info) if info.resource else None
            if found is not None:
                return found
        refused = routes.check_served(info)
        if refused is not None:
            raise refused
        resource = info.resource
        if resource is None:
            handler = _VIRTUAL.get(info.virtual)
            if handler is None:
                raise no_such_path()
            return await handler(self, request, info)
        if info.subresource:
            return await self._subresource(request, info)
        call = crud.Call(self, request, info, resource, user)
        verb = info.verb
        if resource.storage == METRICS:
            return await metrics.handle(call)
        if resource.storage == REVIEW:
            return await reviews.handle(call)
        if verb == "get":
            return get.handle(call)
        if verb == "list":
            return listing.handle(call)
        if verb == "watch":
            return watch.handle(call)
        return await _WRITES[verb](call)

    async def _subresource(self, request: Request, info: RequestInfo) -> Response:
        resource, name, user = info.resource, info.subresource, request.user
        assert resource is not None and user is not None
        if resource.builtin == "Pod" and name in _STREAMS:
            return await _STREAMS[name](self, request, info)
        if name not in resource.subresources or (info.has_rest and name != "proxy"):
            raise no_such_path()
        handler = _SUBRESOURCES.get((resource.builtin, name))
        if handler is not None:
            return await handler(self, request, info)
        call = crud.Call(self, request, info, resource, user)
        if name == "scale":
            return await scale.handle(call)
        if info.verb == "get":
            return get.handle(call)
        if resource.builtin == "Pod" and name in _POD_WRITES:
            return await _POD_WRITES[name](call)
        return await _WRITES[info.verb](call)

    def _health(self, request: Request) -> Response:
        """/healthz, /livez and /readyz, for everybody."""
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        journal = self.store.journal
        if request.path == "/readyz" and journal is not None and journal.failure:
            return Response(500, f"[-]store failed: {journal.failure}\n".encode(), {}, "text/plain")
        if request.path == "/readyz" and not self._ready:
            return Response(500, b"[-]started failed: the server is starting or stopping\n", {}, "text/plain")
        if request.query_string and "verbose" in request.query:
            check = request.path.removeprefix("/")
            body = f"[+]ping ok\n[+]store ok\n{check} check passed\n".encode()
            return Response(200, body, {}, "text/plain; charset=utf-8")
        return Response(200, b"ok", {}, "text/plain; charset=utf-8")


def _nothing() -> None:
    """What a server that was not started has to end."""


def _document(request: Request, catalog: Catalog) -> Response:
    """Discovery, /version and OpenAPI."""
    if request.method not in ("GET", "HEAD"):
        raise no_such_path() if discovery.handle(catalog, request.path, "") is None else method_not_allowed()
    if request.path.startswith("/openapi/"):
        response = openapi.handle(catalog, request.path, request)
    else:
        headers = request.headers
        response = discovery.handle(
            catalog, request.path, headers.get("Accept") or "", headers.get("If-None-Match") or ""
        )
    if response is None:
        raise no_such_path()
    return response
