"""Who may do what: admin and controllers everything, the join user a join, nodes as the Node authorizer says.

`authorize` looks at the request before its body is read; `admit` compares objects, as NodeRestriction does.
Whatever is not allowed here is forbidden.
"""

from collections.abc import Iterator
from typing import Any

from kube32.api.http import Request, UserInfo
from kube32.api.routes import RequestInfo
from kube32.api.status import forbidden, forbidden_because, forbidden_path
from kube32.contract import NAMES, resource_of
from kube32.store import Store

DISCOVERY = ("/api", "/apis", "/version", "/openapi", "/healthz", "/livez", "/readyz")
_CHANGES = ("get", "update", "patch")
_LISTS = ("list", "watch")
_RESTRICTED_LABEL = "node-restriction.kubernetes.io/"


def node_of(user: UserInfo) -> str | None:
    """The node whose kubelet `user` is, None for anybody else."""
    if NAMES.group_nodes not in user.groups or not user.name.startswith(NAMES.user_node_prefix):
        return None
    return user.name[len(NAMES.user_node_prefix) :] or None


def authorize(user: UserInfo, info: RequestInfo, request: Request, store: Store | None) -> None:
    """Raises ApiFailure 403 unless `user` may make the request. Without a store nodes may touch no object."""
    if NAMES.group_masters in user.groups or NAMES.group_controllers in user.groups:
        return
    if not info.is_resource:
        if info.verb in ("get", "head") and _is_discovery(info.non_resource_path):
            return
        raise forbidden_path(user.name, info.verb, info.non_resource_path)
    if info.virtual == "join" and info.verb == "create" and (user.name == NAMES.user_join or node_of(user)):
        return
    node = node_of(user)
    why = ""
    if node is not None and store is not None:
        refused = NodeAccess(store, node).refusal(info, request)
        if refused is None:
            return
        why = refused
    raise forbidden(
        user.name,
        info.verb,
        info.resource or info.plural,
        subresource=info.subresource,
        namespace=info.namespace,
        name=info.name,
        group=info.group,
        why=why,
    )


def _is_discovery(path: str) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in DISCOVERY)


class NodeAccess:
    """What one node's kubelet may reach: itself, the pods bound to it and what these name."""

    def __init__(self, store: Store, node: str) -> None:
        self._store = store
        self._node = node

    def refusal(self, info: RequestInfo, request: Request) -> str | None:
        """None when the node may, else why not ("" when there is no more to say)."""
        if info.resource is None:
            return None if info.virtual == "topics" and info.verb == "create" else ""
        match info.resource.kind:
            case "Pod":
                return self._pod(info, request)
            case "Node":
                return self._self(info, ("", "status"), creates=not info.subresource)
            case "Lease":
                if info.namespace != NAMES.lease_namespace:
                    return f'can only access leases in the "{NAMES.lease_namespace}" system namespace'
                return self._self(info, ("",), creates=True, deletes=True)
            case "Event":
                return None if not info.subresource and info.verb in ("create", "patch", "update") else ""
            case "Module":
                verbs = {"": ("get", *_LISTS), "data": ("get",)}
                return None if info.verb in verbs.get(info.subresource, ()) else ""
            case "ConfigMap" | "Secret":
                return self._named(info) if not info.subresource else ""
            case "Checkpoint":
                return self._named(info) if info.subresource in ("", "data") else ""
        return ""

    def _pod(self, info: RequestInfo, request: Request) -> str | None:
        allowed = {
            "": ("get", "delete", "patch", *_LISTS),
            "status": _CHANGES,
            "eviction": ("create",),
        }
        if info.verb not in allowed.get(info.subresource, ()):
            return ""
        if info.verb in _LISTS:
            selectors = request.query.get("fieldSelector", [])
            wanted = (f"spec.nodeName={self._node}", f"spec.nodeName=={self._node}")
            if len(selectors) == 1 and any(term.strip() in wanted for term in selectors[0].split(",")):
                return None
            return "can only list/watch pods with spec.nodeName field selector"
        entry = self._store.get(resource_of("Pod").object_key(info.namespace, info.name))
        if entry is None or is_bound(entry.obj, self._node):
            return None  # an absent pod is the handler's 404
        return self._unrelated()

    def _self(
        self, info: RequestInfo, subresources: tuple[str, ...], *, creates: bool, deletes: bool = False
    ) -> str | None:
        """Its own Node or Lease. The name of a create stands in the body: `admit` looks at that."""
        if info.subresource not in subresources:
            return ""
        if info.verb == "create":
            return None if creates else ""
        if info.verb in _LISTS:
            return None if info.selected_name == self._node else self._unrelated()
        if info.verb not in _CHANGES and not (deletes and info.verb == "delete"):
            return ""
        return None if info.name == self._node else self._unrelated()

    def _named(self, info: RequestInfo) -> str | None:
        """An object that a pod bound to the node names."""
        assert info.resource is not None
        name = info.name
        if info.verb in _LISTS and info.resource.kind != "Checkpoint":
            name = info.selected_name
        elif info.verb != "get":
            return ""
        if not name or not info.namespace:
            return "can only read objects one by one"
        entries, _ = self._store.scan(resource_of("Pod").object_key(info.namespace, ""))
        for entry in entries:
            if is_bound(entry.obj, self._node) and name in names_in(entry.obj, info.resource.kind):
                return None
        return self._unrelated()

    def _unrelated(self) -> str:
        return f"no relationship found between node {self._node!r} and this object"


def is_bound(pod: dict[str, Any], node: str) -> bool:
    """Whether a pod is bound to a node."""
    return bool((pod.get("spec") or {}).get("nodeName") == node)


def names_in(pod: dict[str, Any], kind: str) -> Iterator[str]:
    """The names of ConfigMaps, Secrets or Checkpoints that a pod uses: volumes, environment, restore-from."""
    if kind == "Checkpoint":
        named = (pod["metadata"].get("annotations") or {}).get(NAMES.ann_restore_from)
        if named:
            yield named
        return
    volume, name, reference = {
        "ConfigMap": ("configMap", "name", "configMapKeyRef"),
        "Secret": ("secret", "secretName", "secretKeyRef"),
    }[kind]
    source = reference.replace("Key", "")
    spec = pod.get("spec") or {}
    for row in spec.get("volumes") or []:
        yield (row.get(volume) or {}).get(name, "")
        for part in (row.get("projected") or {}).get("sources") or []:
            yield (part.get(volume) or {}).get("name", "")
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        for row in container.get("env") or []:
            yield ((row.get("valueFrom") or {}).get(reference) or {}).get("name", "")
        for row in container.get("envFrom") or []:
            yield (row.get(source) or {}).get("name", "")
    if kind == "Secret":
        for row in spec.get("imagePullSecrets") or []:
            yield row.get("name", "")


def admit(user: UserInfo, info: RequestInfo, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
    """Raises ApiFailure 403 when a node's kubelet would write what is not its own.

    `old` is the object as stored (None for a create), `new` as it would be stored (None for a deletion).
    Pods are looked at again here, since they may have been bound elsewhere since `authorize`.
    """
    node = node_of(user)
    if node is None or info.resource is None:
        return
    why = _fault(node, info, old, new)
    if why:
        subject = new or old or {}
        raise forbidden_because(info.resource, subject.get("metadata", {}).get("name") or info.name, why)


def _fault(
    node: str, info: RequestInfo, old: dict[str, Any] | None, new: dict[str, Any] | None
) -> str | None:
    assert info.resource is not None
    kind = info.resource.kind
    if kind in ("Node", "Lease"):
        name = ((new or old or {}).get("metadata") or {}).get("name")
        if name != node:
            return f'node "{node}" is not allowed to modify {kind.lower()} "{name}"'
        return _node_fault(node, old, new) if kind == "Node" else None
    if kind == "Pod":
        return _pod_fault(node, info, old, new)
    return None


def _node_fault(node: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> str | None:
    if new is None:
        return f'node "{node}" is not allowed to delete its Node'
    if old is not None and _taints(old) != _taints(new):
        return f'node "{node}" is not allowed to modify taints'
    if _restricted(old) != _restricted(new):
        return f'node "{node}" is not allowed to modify labels of {_RESTRICTED_LABEL}'
    return None


def _taints(node: dict[str, Any]) -> list[Any]:
    return (node.get("spec") or {}).get("taints") or []


def _restricted(node: dict[str, Any] | None) -> dict[str, str]:
    labels = ((node or {}).get("metadata") or {}).get("labels") or {}
    return {key: value for key, value in labels.items() if _RESTRICTED_LABEL in key}


def _pod_fault(
    node: str, info: RequestInfo, old: dict[str, Any] | None, new: dict[str, Any] | None
) -> str | None:
    if old is None:
        return f'node "{node}" is not allowed to create pods'
    if not is_bound(old, node):
        return f'node "{node}" can only change pods with spec.nodeName set to itself'
    if new is None or info.verb == "delete" or info.subresource == "eviction":
        return None
    if info.subresource == "status":
        return None if is_bound(new, node) else f'node "{node}" is not allowed to bind pods'
    if _without_pin(old) != _without_pin(new):
        return f'node "{node}" may change nothing of a pod but the annotation {NAMES.ann_wasm_sha256}'
    pinned = _annotations(old).get(NAMES.ann_wasm_sha256)
    if pinned is not None and _annotations(new).get(NAMES.ann_wasm_sha256) != pinned:
        return f'node "{node}" is not allowed to change the annotation {NAMES.ann_wasm_sha256} once it is set'
    return None


def _annotations(obj: dict[str, Any]) -> dict[str, str]:
    return (obj.get("metadata") or {}).get("annotations") or {}


def _without_pin(pod: dict[str, Any]) -> dict[str, Any]:
    metadata = dict(pod.get("metadata") or {})
    for name in ("resourceVersion", "managedFields", "generation"):
        metadata.pop(name, None)
    metadata["annotations"] = {k: v for k, v in _annotations(pod).items() if k != NAMES.ann_wasm_sha256}
    return {**pod, "metadata": metadata}
