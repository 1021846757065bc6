"""What the verbs share: their context, their options, and the one way by which stored objects change."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from kube32.api import admission, bodies, claims, metadata, namespaces, new_objects, rules, services, tables
from kube32.api.apply import managed
from kube32.api.custom.resource import CustomResource
from kube32.api.http import Request, Response, UserInfo
from kube32.api.routes import RequestInfo
from kube32.api.status import (
    ApiFailure,
    Cause,
    already_exists,
    bad_request,
    conflict,
    dump,
    invalid,
    not_found,
    too_large,
)
from kube32.contract import NAMES, STORED, Limits, Resource
from kube32.store import (
    AlreadyExists,
    Conflict,
    Entry,
    NotEncodable,
    NotFound,
    ReadingStore,
    Store,
    TooLarge,
    WatchHub,
)

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

Object = dict[str, Any]


@dataclass(slots=True)
class Call:
    """One request on a stored kind, with what its handler needs. `warnings` go into the answer's headers.

    `applied`: the managedFields that a server-side apply has worked out for the object it writes.
    """

    server: "ApiServer"
    request: Request
    info: RequestInfo
    resource: Resource
    user: UserInfo
    warnings: list[str] = field(default_factory=list)
    applied: list[Object] | None = None

    @property
    def notes(self) -> list[str]:
        """The texts of the answer's Warning header."""
        old = self.resource.deprecation if isinstance(self.resource, CustomResource) else ""
        return [old, *self.warnings] if old else self.warnings

    @property
    def store(self) -> Store:
        """The object store."""
        return self.server.store

    @property
    def reads(self) -> ReadingStore:
        """Where the kind's objects are read: what is settled in the object store, or what is computed from it."""
        return self.server.reader(self.resource)[0]

    @property
    def agent(self) -> bool:
        """Whether a node or a controller asks: their writes reach the journal in their own time."""
        return self.user.name.startswith((NAMES.user_node_prefix, NAMES.user_controller_prefix))

    @property
    def hub(self) -> WatchHub:
        """The kind's watches."""
        return self.server.reader(self.resource)[1]

    @property
    def limits(self) -> Limits:
        """The server's limits."""
        return self.server.limits

    @property
    def key(self) -> str:
        """The store's key of the object that the path names."""
        return self.resource.object_key(self.info.namespace, self.info.name)

    @property
    def prefix(self) -> str:
        """The prefix of the keys of the collection that the path names."""
        return (
            f"{self.resource.prefix}{self.info.namespace}/" if self.info.namespace else self.resource.prefix
        )

    def existing(self, name: str = "") -> Entry:
        """The object that the path names, or `name` in the path's collection; ApiFailure 404.

        For a write it is the newest, though its commit may still be under way: that one would conflict else.
        """
        name = name or self.info.name
        source = self.store if self.info.verb != "get" and self.resource.storage == STORED else self.reads
        entry = source.get(self.resource.object_key(self.info.namespace, name))
        if entry is None:
            raise not_found(self.resource, name)
        return rules.shown(self.resource, entry)

    async def body(self) -> bytes:
        """The request's body; ApiFailure 413 past `api_body_bytes`."""
        return await self.request.body(self.limits.api_body_bytes)

    async def object(self) -> Object:
        """The request's body as an object of the path's kind; ApiFailure 400, 413, 415."""
        data, media = await self.body(), bodies.media_type(self.request)
        obj = bodies.decode(data, media, self.resource)
        self.check_fields(obj, data if media == bodies.JSON else None)
        return obj

    def check_fields(self, obj: Object, raw: bytes | None = None) -> None:
        """Decodes an object against its schema, unknown fields as fieldValidation says. ApiFailure 400."""
        mode = self.request.q("fieldValidation") if self.request.query_string else ""
        self.warnings.extend(rules.check_fields(self.resource, obj, mode, raw))


def is_dry_run(call: Call) -> bool:
    """Whether nothing is to be stored; ApiFailure 422 for a dryRun that is not All."""
    return dry_run_of(call.request.query.get("dryRun", ()))


def dry_run_of(values: Iterable[Any]) -> bool:
    """Whether dryRun says All; ApiFailure 422 for anything else."""
    found = [v for v in values if v != ""]
    for value in found:
        if value != "All":
            cause = Cause(
                "dryRun",
                "FieldValueNotSupported",
                f'Unsupported value: "{value}": supported values: "All"',
            )
            raise invalid("Options", "", [cause])
    return bool(found)


# --- answers ---


def answer(call: Call, status: int, entry: Entry) -> Response:
    """One object in the form that the Accept header asks for. JSON is what is stored."""
    accept = call.request.headers.get("Accept")
    view = tables.View.JSON if accept is None else tables.negotiate(accept)
    if view is tables.View.JSON:
        body = entry.value
    elif view.is_table:
        include = tables.include_of(call.request.q("includeObject"))
        body = dump(tables.row(call.resource, entry.obj, include, view=view))
    else:
        body = dump(tables.partial(entry.obj, view))
    return Response(status, body, warning_headers(call.notes))


def warning_headers(warnings: list[str]) -> dict[str, str]:
    """The Warning header that kubectl prints, one value for each text."""
    if not warnings:
        return {}
    quoted = (w.replace("\\", "\\\\").replace('"', '\\"') for w in warnings)
    values = (f'299 - "{"".join(c if c.isprintable() else "?" for c in w)}"' for w in quoted)
    return {"Warning": ", ".join(values)}


# --- changes ---


def write(resource: Resource, name: str, action: Callable[[], Entry]) -> Entry:
    """Runs a write of the store; ApiFailure 400, 404, 409, 413 for what it refuses."""
    try:
        return action()
    except Conflict:
        raise conflict(resource, name) from None
    except AlreadyExists:
        raise already_exists(resource, name) from None
    except NotFound:
        raise not_found(resource, name) from None
    except TooLarge as error:
        raise too_large(error.limit, f'{resource.plural} "{name}" is too large: {_plain(error)}') from None
    except NotEncodable as error:
        raise bad_request(_plain(error)) from None


def _plain(error: TooLarge | NotEncodable) -> str:
    return str(error).removeprefix(f"{error.key}: ")


def unstored(key: str, obj: Object, revision: int) -> Entry:
    """What a dry run answers: the object as it would be stored."""
    return Entry(key, dump(obj), revision)


def put(call: Call, current: Entry, new: Object) -> Entry:
    """Stores `new` if `current` is still what is stored; ApiFailure 400, 404, 409, 413."""
    return write(
        call.resource,
        current.key.rpartition("/")[2],
        lambda: _put(call, current.key, new, current.revision),
    )


def _put(call: Call, key: str, obj: Object, version: int) -> Entry:
    stored = rules.stored(call.resource, obj)
    try:
        entry = call.store.put_extended(key, stored, expected_version=version, agent=call.agent)
    except TooLarge:
        if not managed.give_up(stored):
            raise
        entry = call.store.put_extended(key, stored, expected_version=version, agent=call.agent)
    return rules.shown(call.resource, entry)


def remove(call: Call, current: Entry) -> Entry:
    """Deletes `current` if it is still what is stored; ApiFailure 404, 409."""
    return write(
        call.resource,
        current.key.rpartition("/")[2],
        lambda: call.store.delete(current.key, expected_version=current.revision, agent=call.agent),
    )


def create(call: Call, obj: Object) -> Entry:
    """Checks and stores a new object. ApiFailure 400, 403, 404, 409, 413, 422."""
    resource, namespace = call.resource, call.info.namespace
    dry_run = is_dry_run(call)
    if isinstance(resource, CustomResource):
        call.server.custom_kinds.check_open(resource)
    metadata.prepare_create(
        resource,
        obj,
        namespace,
        lambda name: call.store.get(resource.object_key(namespace, name)) is not None,
    )
    if resource.namespaced:
        namespaces.check_open(call.store, resource, namespace, obj["metadata"]["name"])
    if resource.builtin == "Namespace":
        namespaces.prepare_create(obj)
    if resource.builtin == "PersistentVolumeClaim":
        claims.prepare_create(obj)
    rules.default(resource, obj)
    if resource.builtin == "Job":
        admission.generate_selector(obj)
    managed.track_create(call, obj)
    new_objects.complete(call.store, resource, obj)
    if resource.builtin == "Pod":
        admission.pin_module(obj, call.server.modules)
    call.warnings.extend(rules.validate_create(resource, obj, call.server.catalog))
    if resource.builtin == "Service":
        services.allocate(call.store, obj)
    call.server.security.admit(call.user, call.info, None, obj)
    name = obj["metadata"]["name"]
    key = resource.object_key(namespace, name)
    if dry_run:
        if call.store.get(key) is not None:
            raise already_exists(resource, name)
        return unstored(key, obj, 0)
    return write(resource, name, lambda: _put(call, key, obj, 0))


def replace(call: Call, current: Entry, new: Object) -> Entry:
    """Checks `new` and puts it in the place of `current`; an object that has nothing left to wait for goes.

    ApiFailure 400, 403, 404, 409, 413, 422.
    """
    resource, old = call.resource, current.obj
    dry_run = is_dry_run(call)
    metadata.prepare_update(resource, old, new)
    if call.info.subresource == "status":
        new = metadata.with_status_of(new, orjson.loads(current.value))
    elif metadata.has_status(resource):
        metadata.keep_status(new, old)
    if resource.builtin == "Namespace" and call.info.subresource != "finalize":
        namespaces.keep_finalizers(new, old)
    rules.default(resource, new)
    if resource.builtin == "Service":
        services.prepare_update(old, new)
    managed.track_update(call, old, new)
    call.warnings.extend(rules.validate_update(resource, old, new, call.server.catalog))
    if resource.builtin == "Service":
        services.allocate(call.store, new, old)
    metadata.count_generation(resource, old, new)
    call.server.security.admit(call.user, call.info, old, new)
    if dry_run:
        return unstored(current.key, new, current.revision)
    if metadata.is_finished(new):
        return remove(call, current)
    return put(call, current, new)


def retry(call: Call, make: Callable[[Entry], Object]) -> Entry:
    """Replaces the path's object by what `make` makes of it, again when somebody else wrote in between.

    A resourceVersion that the client named itself fails the first time. ApiFailure as `replace`.
    """
    while True:
        current = call.existing()
        try:
            return replace(call, current, make(current))
        except ApiFailure as failure:
            if not overtaken(call, current, failure):
                raise


def overtaken(call: Call, current: Entry, failure: ApiFailure) -> bool:
    """Whether a write that began with `current` failed because another one was faster: then try again."""
    if failure.code != 409:
        return False
    stored = call.store.get(current.key)
    return stored is not None and stored.revision != current.revision
