"""PATCH with application/apply-patch+yaml: the applied object becomes part of the stored one, or a new one.

Source: Kubernetes, "Server-Side Apply".
"""

from typing import Any

import orjson

from kube32.api import admission, crud, metadata, rules
from kube32.api.apply import (
    body,
    engine,
    field_sets,
    last_applied,
    managed,
    nodes,
    options,
    owners,
    reconcile,
)
from kube32.api.apply.engine import Conflicts, Scope, Writer
from kube32.api.apply.field_sets import FieldSet
from kube32.api.apply.nodes import Node
from kube32.api.apply.owners import BEFORE_FIRST_APPLY, Owners
from kube32.api.apply.values import NotTyped
from kube32.api.http import Response
from kube32.api.status import ApiFailure, bad_request, conflict, not_found
from kube32.store import Entry

Object = dict[str, Any]


async def handle(call: crud.Call) -> Response:
    """200 with the object as it is stored, 201 when it is new. ApiFailure 400, 403, 404, 409, 413, 422."""
    manager, force = options.applier_of(call)
    resource = call.resource
    node = nodes.of(resource, call.server.catalog)
    sent = body.read(call, await call.body(), resource.kind, resource.api_version)
    body.check_typed(call, sent, node)
    config = orjson.loads(orjson.dumps(sent))
    call.check_fields(config)
    status, entry = _write(_Apply(call, sent, config, manager, force))
    return crud.answer(call, status, entry)


async def handle_scale(call: crud.Call, kind: str, api_version: str, path: str) -> Entry:
    """Applies a Scale: its replicas are the object's field at `path` (".spec.replicas"). ApiFailure as `handle`."""
    manager, force = options.applier_of(call)
    scale = body.read(call, await call.body(), kind, api_version)
    body.check_typed(call, scale, nodes.of_kind(kind))
    call.warnings.extend(admission.check_fields(kind, scale, call.request.q("fieldValidation")))
    if not scale["metadata"].get("name"):
        scale["metadata"]["name"] = call.info.name
    config: Object = {"metadata": scale["metadata"]}
    replicas = (scale.get("spec") or {}).get("replicas")
    if replicas is not None:
        *parents, last = path.removeprefix(".").split(".")
        place = config
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = replicas
    return _write(_Apply(call, scale, config, manager, force))[1]


def _write(apply: "_Apply") -> tuple[int, Entry]:
    try:
        return apply.run()
    except NotTyped as error:
        raise bad_request(f"failed to apply: {error}") from None
    except RecursionError:
        raise bad_request("the applied object is nested too deeply") from None


class _Apply:
    """One apply, tried again when another write was faster."""

    def __init__(self, call: crud.Call, sent: Object, config: Object, manager: str, force: bool) -> None:
        self._call = call
        self._sent = sent
        self._force = force
        self._node: Node = nodes.of(call.resource, call.server.catalog)
        self._scope: Scope = managed.scope_of(call.resource, call.info.subresource)
        self._writer: Writer = managed.writer_of(call, manager)
        self._config: bytes = orjson.dumps(config)

    def run(self) -> tuple[int, Entry]:
        """The answer's status and the object as it is stored."""
        call = self._call
        while True:
            current = call.store.get(call.key)
            if current is not None:
                current = rules.shown(call.resource, current)
            warned = len(call.warnings)
            try:
                if current is None:
                    return 201, self._create()
                return 200, crud.replace(call, current, self._applied(current))
            except ApiFailure as failure:
                if not self._overtaken(current, failure):
                    raise
                del call.warnings[warned:]

    def _overtaken(self, current: Entry | None, failure: ApiFailure) -> bool:
        if current is not None:
            return crud.overtaken(self._call, current, failure)
        return failure.reason == "AlreadyExists"

    def _create(self) -> Entry:
        call, resource, name = self._call, self._call.resource, self._call.info.name
        if call.info.subresource:
            raise not_found(resource, name)
        config: Object = orjson.loads(self._config)
        meta = config["metadata"]
        if meta.get("uid"):
            why = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
            raise conflict(resource, name, why)
        if meta.get("resourceVersion"):
            raise conflict(resource, name)
        if not meta.get("name"):
            raise bad_request(
                f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )
        metadata.place(resource, meta, call.info.namespace, name)
        call.server.security.authorize_create(call.user, call.info)
        _, made = engine.apply(self._node, {}, config, self._scope, self._writer, {}, force=True)
        call.applied = owners.entries_of(made)
        return crud.create(call, config)

    def _applied(self, current: Entry) -> Object:
        """The stored object with the sent one applied; its managedFields are left in the call."""
        live: Object = orjson.loads(current.value)
        entries = live["metadata"].pop("managedFields", None)
        before = owners.stored(entries) if entries else self._before_first(live)
        if not self._call.resource.builtin:
            before = reconcile.reconciled(before, live, self._node)
        config: Object = orjson.loads(self._config)
        config["metadata"].setdefault("name", self._call.info.name)
        new, made = self._merge(live, config, before)
        if self._writer.manager == last_applied.KUBECTL and not self._call.info.subresource:
            last_applied.follow(new, self._sent)
        self._call.applied = owners.entries_of(made)
        return new

    def _before_first(self, live: Object) -> Owners:
        """The owners of an object that was not tracked so far: what is there belongs to nobody in particular."""
        writer = managed.writer_of(self._call, BEFORE_FIRST_APPLY)
        return engine.created(self._node, live, self._scope, writer, {})

    def _merge(self, live: Object, config: Object, before: Owners) -> tuple[Object, Owners]:
        node, scope, writer = self._node, self._scope, self._writer
        try:
            return engine.apply(node, live, config, scope, writer, before, force=self._force)
        except Conflicts as conflicts:
            if writer.manager == last_applied.KUBECTL:
                conflicts = conflicts.without(self._client_side(live))
            if conflicts.found:
                raise _refused(conflicts) from None
        return engine.apply(node, live, config, scope, writer, before, force=True)

    def _client_side(self, live: Object) -> FieldSet:
        """What kubectl owns by its client-side apply."""
        resource = self._call.resource
        return last_applied.allowed(
            live, self._node, self._scope, lambda obj: rules.check_fields(resource, obj, "Ignore")
        )


def _refused(conflicts: Conflicts) -> ApiFailure:
    """409 that names every place and its owner."""
    rows = [
        (str(owner), [field_sets.shown(path) for path in field_sets.paths(places)])
        for owner, places in conflicts.found
    ]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {owner}", "field": path}
        for owner, paths in rows
        for path in paths
    ]
    if len(causes) == 1:
        said = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = [
            line for owner, paths in rows for line in (f"conflicts with {owner}:", *(f"- {p}" for p in paths))
        ]
        said = f"{len(causes)} conflicts: " + "\n".join(lines)
    return ApiFailure(409, f"Apply failed with {said}", details={"causes": causes})
