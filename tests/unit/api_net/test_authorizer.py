"""Who may do what: a table for each class of user, and what a node may change of an object."""

from typing import Any

import pytest

from kube32.api.authorizer import admit, authorize
from kube32.api.catalog import Catalog
from kube32.api.http import Request, UserInfo
from kube32.api.rbac.policy import Rbac
from kube32.api.routes import RequestInfo, parse
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS, limits_for, resource_of
from kube32.store import Store

CATALOG = Catalog("sim")
ADMIN = UserInfo("kubernetes-admin", ("system:masters", "system:authenticated"))
CONTROLLERS = UserInfo("system:kube32:controllers", ("system:kube32:controllers", "system:authenticated"))
JOIN = UserInfo("system:kube32:join", ("system:authenticated",))
NODE = UserInfo("system:node:a", ("system:nodes", "system:authenticated"))
ANYBODY = UserInfo("someone", ("system:authenticated",))

PODS = "/api/v1/namespaces/default/pods"
CHECKPOINTS = "/apis/kube32.io/v1/namespaces/default/checkpoints"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
DISCOVERY = [
    "/api",
    "/apis",
    "/api/v1",
    "/apis/kube32.io/v1",
    "/version",
    "/openapi/v3",
    "/openapi/v2",
    "/readyz",
]


def entry(kind: str, name: str, **parts: Any) -> tuple[str, dict[str, Any]]:
    metadata = {"name": name, "namespace": "default", **parts.pop("metadata", {})}
    return resource_of(kind).object_key("default", name), {"metadata": metadata, **parts}


@pytest.fixture
def store() -> Store:
    store = Store(LIMITS)
    spec = {
        "nodeName": "a",
        "containers": [
            {
                "name": "main",
                "env": [
                    {"name": "X", "value": "plain"},
                    {"name": "Y", "valueFrom": {"configMapKeyRef": {"name": "cm-env", "key": "k"}}},
                    {"name": "Z", "valueFrom": {"secretKeyRef": {"name": "secret-env", "key": "k"}}},
                ],
                "envFrom": [
                    {"configMapRef": {"name": "cm-from"}},
                    {"secretRef": {"name": "secret-from"}},
                ],
            }
        ],
        "volumes": [
            {"name": "v1", "configMap": {"name": "cm-volume"}},
            {"name": "v2", "secret": {"secretName": "secret-volume"}},
            {"name": "v3", "projected": {"sources": [{"secret": {"name": "secret-projected"}}]}},
            {"name": "v4", "emptyDir": {}},
        ],
    }
    annotations = {"kube32.io/restore-from": "move-1"}
    spec["volumes"].append({"name": "v5", "persistentVolumeClaim": {"claimName": "claim"}})  # type: ignore[attr-defined]
    store.put(*entry("Pod", "mine", metadata={"annotations": annotations}, spec=spec))
    other = {
        "nodeName": "b",
        "containers": [{"name": "main", "envFrom": [{"secretRef": {"name": "secret-other"}}]}],
    }
    annotations = {"kube32.io/restore-from": "move-2"}
    store.put(*entry("Pod", "theirs", metadata={"annotations": annotations}, spec=other))
    store.put(*entry("Pod", "unbound", spec={"containers": []}))
    served = {"labels": {"app": "web", "more": "x"}}
    store.put(
        *entry("Pod", "served", metadata=served, spec={"nodeName": "b", "serviceAccountName": "theirs"})
    )
    store.put(*entry("Service", "web", spec={"selector": {"app": "web"}}))
    store.put(*entry("Service", "selects-nothing", spec={}))
    return store


def allowed(user: UserInfo, line: str, store: Store | None) -> bool:
    """Whether `user` may make a request such as "GET /api/v1/pods?watch=1"."""
    method, target = line.split(" ")
    path, _, query = target.partition("?")
    request = Request(method, path, query_string=query)
    rbac = Rbac(
        store if store is not None else Store(LIMITS), limits_for("board")
    )  # the built-in roles alone
    try:
        authorize(user, parse(method, path, request.query, CATALOG), request, store, rbac)
    except ApiFailure as failure:
        assert failure.code == 403
        return False
    return True


EVERYTHING = [
    f"GET {PODS}/mine",
    "GET /api/v1/secrets",
    f"PUT {CHECKPOINTS}/x/data",
    "POST /apis/kube32.io/v1/join",
    "DELETE /api/v1/nodes/a",
    "GET /metrics",
    f"POST {PODS}/mine/replacement",
    "GET /api/v1/nodes/a/proxy/pods",
]


@pytest.mark.parametrize("line", EVERYTHING + [f"GET {path}" for path in DISCOVERY])
def test_admin_and_controllers_may_do_everything(store: Store, line: str) -> None:
    assert allowed(ADMIN, line, store)
    assert allowed(CONTROLLERS, line, store)


@pytest.mark.parametrize("user", [JOIN, NODE, ANYBODY], ids=lambda user: user.name)
def test_every_user_may_discover(store: Store, user: UserInfo) -> None:
    for path in DISCOVERY:
        assert allowed(user, f"GET {path}", store)
        assert not allowed(user, f"POST {path}", store)
    for path in ("/metrics", "/", "/apiary", "/logs"):
        assert not allowed(user, f"GET {path}", store)


def test_the_join_token_is_good_for_a_join_only(store: Store) -> None:
    assert allowed(JOIN, "POST /apis/kube32.io/v1/join", store)
    for line in EVERYTHING:
        assert allowed(JOIN, line, store) == line.endswith("/join")
    assert not allowed(JOIN, "GET /apis/kube32.io/v1/join", store)
    assert not allowed(JOIN, "POST /apis/kube32.io/v1/namespaces/default/topics/t", store)


def test_a_stranger_may_do_nothing(store: Store) -> None:
    assert not any(allowed(ANYBODY, line, store) for line in EVERYTHING)
    forged = UserInfo("system:node:a", ("system:authenticated",))
    assert not allowed(forged, f"GET {PODS}/mine", store)
    assert not allowed(UserInfo("system:node:", NODE.groups), f"GET {PODS}/mine", store)


NODE_MAY = [
    "POST /apis/kube32.io/v1/join",
    "GET /api/v1/pods?fieldSelector=spec.nodeName%3Da",
    "GET /api/v1/pods?watch=1&fieldSelector=spec.nodeName=a",
    f"GET {PODS}?watch=true&fieldSelector=status.phase=Running,spec.nodeName==a",
    f"GET {PODS}/mine",
    f"GET {PODS}/mine/status",
    f"PUT {PODS}/mine/status",
    f"PATCH {PODS}/mine/status",
    f"PATCH {PODS}/mine",
    f"DELETE {PODS}/mine",
    f"POST {PODS}/mine/eviction",
    f"GET {PODS}/absent",
    "POST /api/v1/nodes",
    "GET /api/v1/nodes/a",
    "PUT /api/v1/nodes/a",
    "PATCH /api/v1/nodes/a",
    "PATCH /api/v1/nodes/a/status",
    "GET /api/v1/nodes?watch=1&fieldSelector=metadata.name=a",
    f"POST {LEASES}",
    f"GET {LEASES}/a",
    f"PUT {LEASES}/a",
    f"DELETE {LEASES}/a",
    "POST /api/v1/namespaces/default/events",
    "PATCH /api/v1/namespaces/default/events/x",
    "GET /apis/kube32.io/v1/modules",
    "GET /apis/kube32.io/v1/modules?watch=1",
    "GET /apis/kube32.io/v1/modules/m",
    "GET /apis/kube32.io/v1/modules/m/data?digest=ab",
    *(f"GET /api/v1/namespaces/default/configmaps/cm-{use}" for use in ("env", "from", "volume")),
    *(
        f"GET /api/v1/namespaces/default/secrets/secret-{use}"
        for use in ("env", "from", "volume", "projected")
    ),
    "GET /api/v1/namespaces/default/secrets?watch=1&fieldSelector=metadata.name=secret-env",
    f"GET {CHECKPOINTS}/move-1",
    f"GET {CHECKPOINTS}/move-1/data",
    "POST /apis/kube32.io/v1/namespaces/default/topics/t",
    f"GET {PODS}/served/proxy/",
    f"POST {PODS}/served:80/proxy/x",
    f"GET {PODS}/http:served:80/proxy/x",
    "GET /api/v1/services",
    "GET /api/v1/services?watch=1",
    "GET /api/v1/namespaces/default/services/web",
    "GET /api/v1/endpoints",
    "GET /apis/discovery.k8s.io/v1/endpointslices?watch=1",
    "GET /apis/networking.k8s.io/v1/ingresses",
    "GET /apis/networking.k8s.io/v1/ingressclasses/x",
    "GET /api/v1/namespaces/default/persistentvolumeclaims/claim",
    "GET /api/v1/namespaces/default/serviceaccounts/default",
    "POST /api/v1/namespaces/default/serviceaccounts/default/token",
]

NODE_MAY_NOT = [
    "GET /api/v1/pods",
    f"GET {PODS}",
    f"GET {PODS}?watch=1",
    "GET /api/v1/pods?fieldSelector=spec.nodeName=b",
    "GET /api/v1/pods?fieldSelector=spec.nodeName!=a",
    "GET /api/v1/pods?fieldSelector=spec.nodeName=ab",
    "GET /api/v1/pods?fieldSelector=",
    "GET /api/v1/pods?fieldSelector=spec.nodeName=a&fieldSelector=",
    "GET /api/v1/pods?labelSelector=spec.nodeName=a",
    f"GET {PODS}/theirs",
    f"GET {PODS}/unbound",
    f"PATCH {PODS}/theirs/status",
    f"DELETE {PODS}/theirs",
    f"DELETE {PODS}?fieldSelector=spec.nodeName=a",
    f"POST {PODS}",
    f"PUT {PODS}/mine",
    f"POST {PODS}/mine/binding",
    f"POST {PODS}/mine/replacement",
    f"GET {PODS}/mine/log",
    f"GET {PODS}/mine/proxy/x",
    f"POST {PODS}/theirs/eviction",
    "GET /api/v1/nodes",
    "GET /api/v1/nodes/b",
    "PATCH /api/v1/nodes/b",
    "PATCH /api/v1/nodes/b/status",
    "DELETE /api/v1/nodes/a",
    "POST /api/v1/nodes/a/status",
    "GET /api/v1/nodes/a/proxy/pods",
    "GET /api/v1/nodes?fieldSelector=metadata.name=b",
    f"PUT {LEASES}/b",
    f"GET {LEASES}",
    f"PUT {LEASES.replace('kube-node-lease', 'default')}/a",
    "POST /apis/coordination.k8s.io/v1/namespaces/default/leases",
    "GET /api/v1/namespaces/default/events",
    "DELETE /api/v1/namespaces/default/events/x",
    "POST /apis/kube32.io/v1/modules",
    "PUT /apis/kube32.io/v1/modules/m/data",
    "PATCH /apis/kube32.io/v1/modules/m",
    "GET /api/v1/namespaces/default/secrets",
    "GET /api/v1/secrets",
    "GET /api/v1/secrets?fieldSelector=metadata.name=secret-env",
    "GET /api/v1/namespaces/default/secrets/secret-other",
    "GET /api/v1/namespaces/default/secrets/cm-env",
    "GET /api/v1/namespaces/other/secrets/secret-env",
    "PUT /api/v1/namespaces/default/secrets/secret-env",
    "GET /api/v1/namespaces/default/configmaps/secret-env",
    "GET /api/v1/namespaces/default/configmaps",
    f"GET {CHECKPOINTS}",
    f"GET {CHECKPOINTS}/move-2",
    f"GET {CHECKPOINTS}/move-2/data",
    f"PUT {CHECKPOINTS}/move-1/data",
    f"PATCH {CHECKPOINTS}/move-1/status",
    f"GET {CHECKPOINTS}/move-1/status",
    f"POST {CHECKPOINTS}",
    "GET /apis/kube32.io/v1/namespaces/default/topics/t",
    "GET /api/v1/namespaces",
    "DELETE /api/v1/namespaces/default",
    "GET /api/v1/unknown",
    f"GET {PODS}/theirs/proxy/",
    f"GET {PODS}/absent/proxy/",
    f"GET {PODS}/x:served:y:80/proxy/",
    "GET /api/v1/namespaces/other/pods/served/proxy/",
    "GET /api/v1/namespaces/default/services/web/proxy/",
    "POST /api/v1/namespaces/default/services",
    "PATCH /api/v1/namespaces/default/services/web/status",
    "DELETE /apis/networking.k8s.io/v1/ingressclasses/x",
    "GET /api/v1/namespaces/default/persistentvolumeclaims",
    "GET /api/v1/namespaces/default/persistentvolumeclaims/other",
    "GET /api/v1/namespaces/default/serviceaccounts",
    "GET /api/v1/namespaces/default/serviceaccounts/theirs",
    "POST /api/v1/namespaces/default/serviceaccounts/theirs/token",
    "GET /api/v1/namespaces/default/secrets?fieldSelector=&fieldSelector=metadata.name=secret-env",
    "GET /apis/rbac.authorization.k8s.io/v1/clusterroles",
    "GET /apis/kube32.io/v1/users",
]


@pytest.mark.parametrize("line", NODE_MAY)
def test_a_node_may(store: Store, line: str) -> None:
    assert allowed(NODE, line, store)


@pytest.mark.parametrize("line", NODE_MAY_NOT)
def test_a_node_may_not(store: Store, line: str) -> None:
    assert not allowed(NODE, line, store)


def test_before_the_store_is_there_a_node_may_touch_no_object() -> None:
    assert not any(allowed(NODE, line, None) for line in NODE_MAY if not line.endswith("/join"))


def test_a_refusal_has_kubernetes_words(store: Store) -> None:
    request = Request("GET", "/api/v1/namespaces/default/secrets/secret-other")
    with pytest.raises(ApiFailure) as failure:
        authorize(NODE, parse("GET", request.path, {}, CATALOG), request, store, None)
    assert failure.value.message == (
        'secrets "secret-other" is forbidden: User "system:node:a" cannot get resource "secrets" '
        'in API group "" '
        "in the namespace \"default\": no relationship found between node 'a' and this object"
    )
    with pytest.raises(ApiFailure) as failure:
        authorize(JOIN, parse("GET", "/metrics", {}, CATALOG), Request("GET", "/metrics"), store, None)
    assert failure.value.message == 'forbidden: User "system:kube32:join" cannot get path "/metrics"'


def pod(node: str = "a", **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "annotations": annotations, "resourceVersion": "1"},
        "spec": {"nodeName": node} if node else {},
        "status": {},
    }


def info(kind: str, verb: str, subresource: str = "") -> RequestInfo:
    return RequestInfo(verb, resource_of(kind), subresource, "default", "p")


def node(name: str = "a", **parts: Any) -> dict[str, Any]:
    labels = parts.pop("labels", {})
    return {"metadata": {"name": name, "labels": labels}, **parts}


PIN = {"kube32.io/wasm-sha256": "0" * 64}
TAINT = {"key": "k", "effect": "NoSchedule"}
RESTRICTED = {"node-restriction.kubernetes.io/x": "y"}

ADMITTED: list[tuple[RequestInfo, dict[str, Any] | None, dict[str, Any] | None]] = [
    (info("Node", "create"), None, node()),
    (info("Node", "create"), None, node(spec={"taints": [TAINT]}, labels={"my": "label"})),
    (info("Node", "patch"), node(), node(spec={"unschedulable": True}, labels={"my": "label"})),
    (info("Node", "patch", "status"), node(), node(status={"x": 1})),
    (info("Lease", "update"), node(), node(spec={"holderIdentity": "a"})),
    (info("Pod", "patch"), pod(), pod(**PIN)),
    (info("Pod", "patch"), pod(**PIN), pod(**PIN)),
    (info("Pod", "update", "status"), pod(), {**pod(), "status": {"phase": "Running"}}),
    (info("Pod", "delete"), pod(), None),
    (info("Pod", "delete"), pod(), {**pod(), "metadata": {"name": "p", "deletionTimestamp": "x"}}),
    (info("Event", "create"), None, {"metadata": {"name": "e"}}),
]

NOT_ADMITTED: list[tuple[RequestInfo, dict[str, Any] | None, dict[str, Any] | None]] = [
    (info("Node", "create"), None, node("b")),
    (info("Node", "create"), None, node(labels=RESTRICTED)),
    (info("Node", "patch"), node("b"), node("b")),
    (info("Node", "update"), node(), node(spec={"taints": [TAINT]})),
    (info("Node", "update"), node(spec={"taints": [TAINT]}), node()),
    (info("Node", "update"), node(labels=RESTRICTED), node()),
    (info("Node", "delete"), node(), None),
    (info("Lease", "create"), None, node("b")),
    (info("Pod", "create"), None, pod()),
    (info("Pod", "patch"), None, pod()),
    (info("Pod", "patch"), pod("b"), pod("b", **PIN)),
    (info("Pod", "patch"), pod(""), pod("a")),
    (info("Pod", "patch"), pod(), pod("b")),
    (info("Pod", "patch"), pod(), pod(other="annotation")),
    (info("Pod", "patch"), pod(**PIN), pod()),
    (info("Pod", "patch"), pod(**PIN), pod(**{"kube32.io/wasm-sha256": "1" * 64})),
    (info("Pod", "update", "status"), pod("b"), pod("b")),
    (info("Pod", "update", "status"), pod(), pod("b")),
    (info("Pod", "delete"), pod("b"), None),
]


@pytest.mark.parametrize(("request_info", "old", "new"), ADMITTED)
def test_a_node_may_write(
    request_info: RequestInfo, old: dict[str, Any] | None, new: dict[str, Any] | None
) -> None:
    admit(NODE, request_info, old, new)


@pytest.mark.parametrize(("request_info", "old", "new"), NOT_ADMITTED)
def test_a_node_may_not_write(
    request_info: RequestInfo, old: dict[str, Any] | None, new: dict[str, Any] | None
) -> None:
    with pytest.raises(ApiFailure) as failure:
        admit(NODE, request_info, old, new)
    assert failure.value.code == 403
    admit(CONTROLLERS, request_info, old, new)


def test_a_node_that_writes_another_is_told_so_in_kubernetes_words() -> None:
    with pytest.raises(ApiFailure) as failure:
        admit(NODE, info("Node", "create"), None, node("b"))
    assert failure.value.message == 'nodes "b" is forbidden: node "a" is not allowed to modify node "b"'
