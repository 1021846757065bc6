"""ReplicaSets of a Deployment, for clients that ask for them: Deployments own their pods themselves.

One for each template that the Deployment remembers (status.history).
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from kube32.api.computed.facts import PodFacts
from kube32.api.computed.identity import derived_uid, owned_by
from kube32.contract import resource_of
from kube32.formats.template_hash import template_hash

Obj = dict[str, Any]
_HASH_LABEL = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"
_DESIRED = "deployment.kubernetes.io/desired-replicas"
_MOST = "deployment.kubernetes.io/max-replicas"
_CAUSE = "kubernetes.io/change-cause"
_NOT_COPIED = (_CAUSE, _REVISION, "kubectl.kubernetes.io/last-applied-configuration")


def replica_sets(deployment: Obj, pods: Iterable[PodFacts]) -> list[Obj]:
    """All ReplicaSets, by the Deployment's history."""
    status = deployment.get("status") or {}
    template = (deployment.get("spec") or {}).get("template") or {}
    rows = {row["hash"]: row for row in status.get("history") or []}
    current = rows.get(template_hash(template))
    if current is not None:
        # It may have been too large to be kept twice.
        rows[current["hash"]] = {**current, "template": template}
    by_hash: dict[str, list[PodFacts]] = {}
    for pod in pods:
        by_hash.setdefault(pod.labels.get(_HASH_LABEL, ""), []).append(pod)
    return [_replica_set(deployment, row, by_hash.get(h, [])) for h, row in rows.items()]


def _counts(pod: PodFacts) -> bool:
    return not pod.deleting and not pod.ended


def _replica_set(deployment: Obj, row: Obj, pods: list[PodFacts]) -> Obj:
    resource, metadata, spec = resource_of("ReplicaSet"), deployment["metadata"], deployment.get("spec") or {}
    alive = [p for p in pods if _counts(p)]
    wanted = int(spec.get("replicas") or 0)
    desired = int(row.get("replicas") or 0)
    template = _labelled(row.get("template") or {}, row["hash"])
    labels = (template.get("metadata") or {}).get("labels") or {}
    ready = [p for p in alive if p.ready]
    settled = int(spec.get("minReadySeconds") or 0)
    # kubectl rollout undo puts a ReplicaSet's annotations on the Deployment: it must not lose its own.
    own = metadata.get("annotations") or {}
    annotations = {k: v for k, v in own.items() if k not in _NOT_COPIED}
    annotations |= {
        _REVISION: str(row.get("revision") or 1),
        _DESIRED: str(row.get("desiredReplicas") or wanted),
        _MOST: str(row.get("maxReplicas") or _most(spec, wanted)),
    }
    if row.get("changeCause"):
        annotations[_CAUSE] = row["changeCause"]
    name = f"{metadata['name']}-{row['hash']}"
    selector = dict(spec.get("selector") or {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _HASH_LABEL: row["hash"]}
    status = {"replicas": len(alive), "observedGeneration": 1}
    counts = {
        "fullyLabeledReplicas": len(alive),
        "readyReplicas": len(ready),
        "availableReplicas": sum(_available(p, settled) for p in ready),
    }
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "uid": derived_uid(f"ReplicaSet/{row['hash']}", metadata["uid"]),
            "creationTimestamp": row.get("createdAt") or metadata.get("creationTimestamp"),
            "generation": 1,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": owned_by("Deployment", deployment),
        },
        "spec": {
            "replicas": desired,
            **({"minReadySeconds": settled} if settled else {}),
            "selector": selector,
            "template": template,
        },
        "status": {**status, **{k: v for k, v in counts.items() if v}},
    }


def _labelled(template: Obj, hash_: str) -> Obj:
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), _HASH_LABEL: hash_}
    return {**template, "metadata": metadata}


def _most(spec: Obj, wanted: int) -> int:
    """Pods that a rollout may have at one time."""
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return wanted
    surge = (strategy.get("rollingUpdate") or {}).get("maxSurge", "25%")
    if isinstance(surge, str):
        digits = surge.removesuffix("%")
        return wanted + -(-wanted * int(digits) // 100) if digits.isdigit() else wanted
    return wanted + int(surge)


def _available(pod: PodFacts, seconds: int) -> bool:
    if not seconds:
        return True
    try:
        since = datetime.fromisoformat(pod.ready_at)
    except ValueError:
        return False
    return (datetime.now(UTC) - since).total_seconds() >= seconds
