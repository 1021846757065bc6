"""Validation of the annotations that tell Kube32 how a pod runs, moves and is saved (specification, pod
ABI).
"""

import re
from typing import Any

from kube32.api.admission import names
from kube32.api.admission.problems import Problems
from kube32.contract import LIMITS, NAMES, text
from kube32.formats import duration

_DIGEST = re.compile(r"[0-9a-f]{64}")
_LEAST_MS = {
    NAMES.ann_tick_interval: LIMITS.pod_tick_min_ms,
    NAMES.ann_call_timeout: 1,
    NAMES.ann_checkpoint_interval: LIMITS.checkpoint_interval_min_ms,
}


def annotation_path(name: str) -> str:
    """ "metadata.annotations[kube32.io/wasm]"."""
    return f"metadata.annotations[{name}]"


def check_annotations(annotations: dict[str, Any], problems: Problems) -> None:
    """Durations, policies, topics, the digest and the checkpoint to restore from, where they are set."""
    for name, least in _LEAST_MS.items():
        if name in annotations:
            _check_duration(annotations[name], name, least, problems)
    for name, known in (
        (NAMES.ann_migration, NAMES.migration_policies),
        (NAMES.ann_placement, NAMES.placements),
    ):
        if name in annotations and annotations[name] not in known:
            problems.unsupported(annotation_path(name), annotations[name], known)
    if NAMES.ann_topics in annotations:
        _check_topics(annotations[NAMES.ann_topics], problems)
    pinned = annotations.get(NAMES.ann_wasm_sha256)
    if pinned is not None and not _DIGEST.fullmatch(pinned):
        problems.invalid(annotation_path(NAMES.ann_wasm_sha256), pinned, text("validation", "digest_form"))
    restore = annotations.get(NAMES.ann_restore_from)
    if restore is not None:
        problems.invalids(annotation_path(NAMES.ann_restore_from), restore, names.subdomain(restore))


def _check_duration(value: str, name: str, least_ms: int, problems: Problems) -> None:
    try:
        found = duration.parse_ms(value)
    except ValueError as e:
        problems.invalid(annotation_path(name), value, str(e))
        return
    if found < least_ms:
        least = f"{least_ms // 1000}s" if least_ms >= 1000 else f"{least_ms}ms"
        problems.invalid(annotation_path(name), value, text("validation", "duration_least", least=least))


def _check_topics(value: str, problems: Problems) -> None:
    """Topics are separated by commas, with or without blanks; an empty annotation names none."""
    path = annotation_path(NAMES.ann_topics)
    topics = [t.strip() for t in value.split(",")] if value.strip() else []
    if len(topics) > LIMITS.pod_topics:
        problems.invalid(
            path, value, text("validation", "topics_many", count=len(topics), limit=LIMITS.pod_topics)
        )
    elif any(not t or len(t.encode()) > LIMITS.pod_topic_bytes for t in topics):
        problems.invalid(path, value, text("validation", "topic_form", limit=LIMITS.pod_topic_bytes))
