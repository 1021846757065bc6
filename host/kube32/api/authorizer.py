"""Who may do what: admin and controllers everything, nodes as the Node authorizer says, the join user a join, and
everybody what roles and bindings give (api/rbac).

`authorize` looks at the request before its body is read; `admit` compares objects, as NodeRestriction does.
Whatever is not allowed here is forbidden.
"""

from collections.abc import Iterator
from typing import Any

from kube32.api.http import Request, UserInfo
from kube32.api.rbac.index import Decision
from kube32.api.rbac.policy import Rbac
from kube32.api.rbac.rules import Attributes
from kube32.api.routes import RequestInfo
from kube32.api.status import ApiFailure, forbidden, forbidden_because, forbidden_path
from kube32.contract import NAMES, RESOURCES, Resource, resource_of
from kube32.formats.pins import is_pin, pins
from kube32.store import Store

_CHANGES = ("get", "update", "patch")
_LISTS = ("list", "watch")
_RESTRICTED_LABEL = "node-restriction.kubernetes.io/"


def node_of(user: UserInfo) -> str | None:
    """The node whose kubelet `user` is, None for anybody else."""
    if NAMES.group_nodes not in user.groups or not user.name.startswith(NAMES.user_node_prefix):
        return None
    return user.name[len(NAMES.user_node_prefix) :] or None


def authorize(
    user: UserInfo, info: RequestInfo, request: Request, store: Store | None, rbac: Rbac | None
) -> None:
    """Raises ApiFailure 403 unless `user` may make the request. Without a store nodes may touch no object."""
    if NAMES.group_masters in user.groups or NAMES.group_controllers in user.groups:
        return
    wanted = attributes(info)
    decision = decide(user, wanted, info, request, store, rbac)
    if decision.allowed:
        return
    if not info.is_resource:
        raise forbidden_path(user.name, info.verb, info.non_resource_path, decision.reason)
    raise refusal(user, wanted, decision.reason, info.resource)


def decide(
    user: UserInfo,
    wanted: Attributes,
    info: RequestInfo,
    request: Request,
    store: Store | None,
    rbac: Rbac | None,
) -> Decision:
    """Whether somebody who is neither admin nor controller may make a request, and why (not).

    `wanted` is the request as roles speak of it.
    """
    node = node_of(user)
    why = ""
    if node is not None and store is not None and info.is_resource:
        refused = NodeAccess(store, node).refusal(info, request)
        if refused is None:
            return Decision(True)
        why = refused
    if info.virtual == "join" and info.verb == "create" and (user.name == NAMES.user_join or node):
        return Decision(True)
    decision = rbac.decide(user, wanted) if rbac is not None else Decision(False)
    return decision if decision.allowed else Decision(False, why or decision.reason)


def attributes(info: RequestInfo) -> Attributes:
    """What a request asks for, as roles speak of it. A list narrowed to one name is about that name."""
    if not info.is_resource:
        verb = "get" if info.verb == "head" else info.verb
        return Attributes(verb, path=info.non_resource_path, is_resource=False)
    resource = info.resource
    namespace = info.namespace
    if resource is not None and resource.kind == "Namespace" and not resource.group:
        namespace = info.name  # as kube-apiserver: a role in a namespace can be about the namespace itself
    return Attributes(
        info.verb,
        resource.group if resource is not None else info.group,
        resource.plural if resource is not None else info.plural,
        info.subresource,
        namespace,
        info.name or info.selected_name,
    )


def refusal(user: UserInfo, wanted: Attributes, why: str, resource: Resource | None = None) -> ApiFailure:
    """The 403 of somebody who may not do something to a resource."""
    return forbidden(
        user.name,
        wanted.verb,
        resource or wanted.resource,
        subresource=wanted.subresource,
        namespace=wanted.namespace,
        name=wanted.name,
        group=wanted.group,
        why=why,
    )


class NodeAccess:
    """What one node's kubelet may reach: itself, the pods bound to it and what these name."""

    def __init__(self, store: Store, node: str) -> None:
        self._store = store
        self._node = node

    def refusal(self, info: RequestInfo, request: Request) -> str | None:
        """None when the node may, else why not ("" when there is no more to say)."""
        if info.resource is None:
            return None if info.virtual == "topics" and info.verb == "create" else ""
        if not is_builtin(info.resource):
            return ""
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
            case "ConfigMap" | "Secret" | "PersistentVolumeClaim":
                return self._named(info) if not info.subresource else ""
            case "ServiceAccount":
                return self._account(info)
            case "Service" | "Endpoints" | "EndpointSlice" | "Ingress" | "IngressClass":
                # The node's listeners need them, as kube-proxy and an Ingress controller do.
                return None if not info.subresource and info.verb in ("get", *_LISTS) else ""
            case "Checkpoint":
                return self._named(info) if info.subresource in ("", "data") else ""
        return ""

    def _pod(self, info: RequestInfo, request: Request) -> str | None:
        if info.subresource == "proxy":
            return self._proxied(info)
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

    def _proxied(self, info: RequestInfo) -> str | None:
        """A pod that a Service of its namespace selects: the node's listeners pass requests on to it."""
        name = (
            info.name.rpartition(":")[0].rpartition(":")[2] or info.name
        )  # "pod", "pod:port", "http:pod:port"
        entry = self._store.get(resource_of("Pod").object_key(info.namespace, name))
        if entry is None:
            return "can only reach pods that a Service selects"
        labels = entry.obj["metadata"].get("labels") or {}
        services, _ = self._store.scan(resource_of("Service").object_key(info.namespace, ""))
        for service in services:
            selector = (service.obj.get("spec") or {}).get("selector") or {}
            if selector and all(labels.get(key) == value for key, value in selector.items()):
                return None
        return "can only reach pods that a Service selects"

    def _account(self, info: RequestInfo) -> str | None:
        """The ServiceAccount of a pod bound to the node, and tokens for it (see identity/token_requests)."""
        if info.subresource == "token":
            return self._used(info, info.name) if info.verb == "create" else ""
        return self._named(info) if not info.subresource else ""

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
        return self._used(info, name)

    def _used(self, info: RequestInfo, name: str) -> str | None:
        assert info.resource is not None
        entries, _ = self._store.scan(resource_of("Pod").object_key(info.namespace, ""))
        for entry in entries:
            if is_bound(entry.obj, self._node) and name in names_in(entry.obj, info.resource.kind):
                return None
        return self._unrelated()

    def _unrelated(self) -> str:
        return f"no relationship found between node {self._node!r} and this object"


def is_builtin(resource: Resource) -> bool:
    """Whether it is the contract's kind of that name, and not a custom one of another group."""
    return any(r.kind == resource.kind and r.group == resource.group for r in RESOURCES)


def is_bound(pod: dict[str, Any], node: str) -> bool:
    """Whether a pod is bound to a node."""
    return bool((pod.get("spec") or {}).get("nodeName") == node)


def names_in(pod: dict[str, Any], kind: str) -> Iterator[str]:
    """The names of objects of a kind that a pod uses: volumes, environment, restore-from, its account."""
    if kind == "ServiceAccount":
        yield (pod.get("spec") or {}).get("serviceAccountName") or "default"
        return
    if kind == "PersistentVolumeClaim":
        for row in (pod.get("spec") or {}).get("volumes") or []:
            yield (row.get("persistentVolumeClaim") or {}).get("claimName", "")
        return
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
    if node is None or info.resource is None or not is_builtin(info.resource):
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
    for name, pinned in pins(_annotations(old)).items():
        if _annotations(new).get(name) != pinned:
            return f'node "{node}" is not allowed to change the annotation {name} once it is set'
    return None


def _annotations(obj: dict[str, Any]) -> dict[str, str]:
    return (obj.get("metadata") or {}).get("annotations") or {}


def _without_pin(pod: dict[str, Any]) -> dict[str, Any]:
    metadata = dict(pod.get("metadata") or {})
    for name in ("resourceVersion", "managedFields", "generation"):
        metadata.pop(name, None)
    metadata["annotations"] = {k: v for k, v in _annotations(pod).items() if not is_pin(k)}
    return {**pod, "metadata": metadata}
