"""Sets of completion indexes, as Kubernetes writes them: 1,3-5."""

from collections.abc import Iterable

from kube32.contract import NAMES
from kube32.controllers.objects import Obj, annotation


def spans(indexes: Iterable[int]) -> str:
    """The text of a set."""
    found: list[list[int]] = []
    for index in sorted(indexes):
        if found and index == found[-1][1] + 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def parse_spans(text: str, below: int) -> set[int]:
    """The set of a text, without what is not below a number; what is no number counts for nothing."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found |= set(range(int(first), min(int(last or first) + 1, below)))
    return {index for index in found if index < below}


def index_of(pod: Obj) -> int | None:
    """The number of the completion that the pod is for."""
    value = annotation(pod, NAMES.job_index)
    return int(value) if value is not None and value.isdigit() else None
