"""Whatever happens in whatever order: what was kept true is what would be computed afresh, and watches know it."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kube32.api.computed import Views
from kube32.contract import LIMITS, resource_of
from kube32.store import Change, NotFound, Store

Obj = dict[str, Any]
SPACES = ("default", "other")
names = st.sampled_from(("a", "b", "c"))
apps = st.sampled_from(("x", "y"))


def _metadata(kind: str, space: str, name: str, **more: Any) -> Obj:
    return {"name": name, "namespace": space, "uid": f"{kind}-{space}-{name}", **more}


@st.composite
def pods(draw: st.DrawFn, space: str, name: str) -> Obj:
    owner = draw(names)
    metadata = _metadata(
        "Pod",
        space,
        name,
        labels={"app": draw(apps), "pod-template-hash": draw(st.sampled_from(("h1", "h2")))},
        ownerReferences=[
            {"kind": "Deployment", "name": owner, "uid": f"Deployment-{space}-{owner}", "controller": True}
        ],
    )
    if draw(st.booleans()):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ports = [{"name": "http", "containerPort": draw(st.sampled_from((80, 81)))}]
    status: Obj = {
        "phase": draw(st.sampled_from(("Pending", "Running", "Failed"))),
        "conditions": [{"type": "Ready", "status": draw(st.sampled_from(("True", "False")))}],
    }
    ip = draw(st.sampled_from(("", "10.0.0.1", "10.0.0.2", "fd00::1")))
    if ip:
        status["podIP"] = ip
    return {"metadata": metadata, "spec": {"containers": [{"name": "m", "ports": ports}]}, "status": status}


@st.composite
def services(draw: st.DrawFn, space: str, name: str) -> Obj:
    selector = draw(st.sampled_from(({}, {"app": "x"}, {"app": "y"}, {"app": "x", "more": "1"})))
    target = draw(st.sampled_from((80, "http", "none")))
    spec = {"selector": selector, "ports": [{"port": 80, "targetPort": target}]}
    spec["type"] = draw(st.sampled_from(("ClusterIP", "ExternalName")))
    return {"metadata": _metadata("Service", space, name), "spec": spec}


@st.composite
def deployments(draw: st.DrawFn, space: str, name: str) -> Obj:
    rows = [{"hash": h, "revision": n, "template": {}} for n, h in enumerate(("h1", "h2"), 1)]
    spec = {"replicas": draw(st.integers(0, 3)), "selector": {"matchLabels": {"app": "x"}}, "template": {}}
    status = {"history": draw(st.sampled_from((rows, rows[:1], [])))}
    return {"metadata": _metadata("Deployment", space, name), "spec": spec, "status": status}


MAKERS = {"Pod": pods, "Service": services, "Deployment": deployments}


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, str, Obj | None]:
    """A kind, a key, and the object that is put there; None: it is deleted, or everything is read."""
    kind = draw(st.sampled_from(("Pod", "Pod", "Pod", "Service", "Deployment", "read")))
    if kind == "read":
        return "read", "", None
    space, name = draw(st.sampled_from(SPACES)), draw(names)
    obj = None if draw(st.integers(0, 4)) == 0 else draw(MAKERS[kind](space, name))
    resource = resource_of(kind)
    head = {"apiVersion": resource.api_version, "kind": kind}
    return kind, resource.object_key(space, name), None if obj is None else {**head, **obj}


def found(views: Views) -> dict[str, Any]:
    """What readers see, but for versions and for the slice in which a pod is."""
    seen: dict[str, Any] = {}
    for entry in views.store.scan("/registry/")[0]:
        obj = {**entry.obj, "metadata": dict(entry.obj["metadata"])}
        assert int(obj["metadata"].pop("resourceVersion")) == entry.revision
        if obj["kind"] == "EndpointSlice":
            service = (obj["metadata"]["namespace"], obj["metadata"]["labels"]["kubernetes.io/service-name"])
            rows = [(obj["addressType"], str(obj["ports"]), str(e)) for e in obj["endpoints"]]
            seen.setdefault(f"slices of {service}", set()).update(rows)
        else:
            seen[entry.key] = obj
    return seen


@settings(max_examples=150, deadline=None)
@given(st.lists(steps(), max_size=30))
def test_what_is_kept_true_is_what_would_be_computed_afresh(
    happens: list[tuple[str, str, Obj | None]],
) -> None:
    store = Store(LIMITS)
    views = Views(store)
    changes: list[Change] = []
    views.store.subscribe("/registry/", changes.append)
    for kind, key, obj in happens:
        if kind == "read":
            views.store.scan("/registry/")
        elif obj is not None:
            store.put(key, obj)
        else:
            try:
                store.delete(key)
            except NotFound:
                continue
    assert found(views) == found(Views(store))
    revisions = [c.revision for c in changes]
    assert revisions == sorted(set(revisions))
    replayed: dict[str, bytes] = {}
    for change in changes:
        assert (change.type == "ADDED") == (change.key not in replayed)
        if change.type == "DELETED":
            del replayed[change.key]
        else:
            replayed[change.key] = change.entry.value
    assert replayed == {e.key: e.value for e in views.store.scan("/registry/")[0]}
