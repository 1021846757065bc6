"""metrics.k8s.io: what nodes and pods use, in the forms that kubectl top and other clients ask for."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from kube32.api import selectors, tables
from kube32.api.http import Response
from kube32.api.node_samples import Sample, Used
from kube32.api.status import dump, not_found
from kube32.contract import resource_of

if TYPE_CHECKING:
    from kube32.api.crud import Call

Obj = dict[str, Any]


async def handle(call: "Call") -> Response:
    """GET and LIST of NodeMetrics and PodMetrics; ApiFailure 404, 406."""
    is_node = call.resource.kind == "NodeMetrics"
    if call.info.verb == "get":
        kind = resource_of("Node" if is_node else "Pod")
        entry = call.store.get(kind.object_key(call.info.namespace, call.info.name))
        rows = [] if entry is None else await _rows(call, [entry.obj])
        if not rows:
            raise not_found(call.resource, call.info.name)
        return _answer(call, rows[0])
    match = selectors.match_of(
        call.resource, call.request.q("labelSelector"), call.request.q("fieldSelector")
    )
    kind = resource_of("Node" if is_node else "Pod")
    prefix = f"{kind.prefix}{call.info.namespace}/" if call.info.namespace else kind.prefix
    found = [e.obj for e in call.store.scan(prefix)[0]]
    rows = await _rows(call, found)
    return _list(call, [r for r in rows if match is None or match(r)])


async def _rows(call: "Call", objects: list[Obj]) -> list[Obj]:
    """Metrics of Nodes or Pods, of those that have any."""
    if call.resource.kind == "NodeMetrics":
        samples = await call.server.sampler.nodes(o["metadata"]["name"] for o in objects)
        return [
            _node(call, o, samples[o["metadata"]["name"]])
            for o in objects
            if o["metadata"]["name"] in samples
        ]
    nodes = {str((o.get("spec") or {}).get("nodeName") or "") for o in objects} - {""}
    samples = await call.server.sampler.nodes(nodes)
    made = []
    for pod in objects:
        sample = samples.get(str((pod.get("spec") or {}).get("nodeName") or ""))
        row = None if sample is None else _pod(call, pod, sample)
        if row is not None:
            made.append(row)
    return made


def _node(call: "Call", node: Obj, sample: Sample) -> Obj:
    window_s, then = sample.window_s, None
    if window_s and sample.before is not None:
        then = sample.before.node
    window_s = window_s or sample.uptime_ms / 1000
    return {**_head(call, node, sample, window_s), "usage": _usage(sample.node, then, window_s)}


def _pod(call: "Call", pod: Obj, sample: Sample) -> Obj | None:
    uid = pod["metadata"]["uid"]
    containers = sample.pods.get(uid)
    if not containers:
        return None
    earlier = sample.before.pods.get(uid, {}) if sample.window_s and sample.before is not None else {}
    ages = _ages_s(pod, sample.wall)
    rows, windows = [], []
    for name, used in containers.items():
        then = earlier.get(name)
        if then is None or then.cpu_ns > used.cpu_ns:
            # There was none yet at the earlier sample, or it has begun anew.
            then, window_s = None, ages.get(name, sample.uptime_ms / 1000)
        else:
            window_s = sample.window_s
        windows.append(window_s)
        rows.append({"name": name, "usage": _usage(used, then, window_s)})
    return {**_head(call, pod, sample, max(windows)), "containers": rows}


def _ages_s(pod: Obj, now: datetime) -> dict[str, float]:
    """How long the pod's containers have been running."""
    ages = {}
    status = pod.get("status") or {}
    for row in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        started = ((row.get("state") or {}).get("running") or {}).get("startedAt")
        try:
            ages[str(row["name"])] = (now - datetime.fromisoformat(str(started))).total_seconds()
        except (TypeError, ValueError):
            continue
    return ages


def _head(call: "Call", obj: Obj, sample: Sample, window_s: float) -> Obj:
    metadata = {
        k: obj["metadata"][k]
        for k in ("name", "namespace", "labels", "creationTimestamp")
        if k in obj["metadata"]
    }
    window = f"{max(window_s, 0.001):.3f}".rstrip("0").rstrip(".")
    return {
        "kind": call.resource.kind,
        "apiVersion": call.resource.api_version,
        "metadata": metadata,
        "timestamp": sample.wall.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "window": f"{window}s",
    }


def _usage(now: Used, then: Used | None, window_s: float) -> Obj:
    spent = now.cpu_ns - (0 if then is None else then.cpu_ns)
    # Times of starts are whole seconds: a container younger than that is taken to be a second old.
    rate = max(spent, 0) / (window_s if then is not None else max(window_s, 1.0))
    return {"cpu": f"{int(rate)}n", "memory": f"{now.memory // 1024}Ki"}


def _answer(call: "Call", row: Obj) -> Response:
    view = tables.negotiate(call.request.headers.get("Accept") or "")
    if view is tables.View.JSON:
        return Response(200, dump(row))
    if view.is_table:
        include = tables.include_of(call.request.q("includeObject"))
        return Response(200, dump(tables.row(call.resource, row, include, view=view)))
    return Response(200, dump(tables.partial(row, view)))


def _list(call: "Call", rows: list[Obj]) -> Response:
    view = tables.negotiate(call.request.headers.get("Accept") or "")
    revision = call.store.revision
    if view is tables.View.JSON:
        head = {
            "kind": f"{call.resource.kind}List",
            "apiVersion": call.resource.api_version,
            "metadata": {"resourceVersion": str(revision)},
        }
        return Response(200, dump({**head, "items": rows}))
    if view.is_table:
        include = tables.include_of(call.request.q("includeObject"))
        return Response(200, dump(tables.table(call.resource, rows, revision, include, view=view)))
    return Response(200, dump(tables.partial_list(rows, revision, view=view)))
