"""A Job's podFailurePolicy and successPolicy. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from kube32.controllers.objects import Obj, name_of, spec_of, status_of
from kube32.controllers.workloads.jobs.indexes import parse_spans


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is done about a failed pod: Count, Ignore or FailJob; `words` and `fields` say why."""

    action: str
    words: str = ""
    fields: tuple[tuple[str, object], ...] = ()


COUNT = Verdict("Count")


def judge(job: Obj, pod: Obj) -> Verdict:
    """The first rule that fits the failed pod; without one it counts."""
    rules = (spec_of(job).get("podFailurePolicy") or {}).get("rules") or []
    for index, rule in enumerate(rules):
        verdict = _by_exit_code(rule, index, pod) or _by_condition(rule, index, pod)
        if verdict is not None:
            return verdict
    return COUNT


def _ended(pod: Obj) -> Iterator[tuple[str, int]]:
    status = status_of(pod)
    for row in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        terminated = (row.get("state") or {}).get("terminated")
        if terminated is not None and terminated.get("exitCode"):
            yield str(row.get("name")), int(terminated["exitCode"])


def _by_exit_code(rule: Obj, index: int, pod: Obj) -> Verdict | None:
    wanted = rule.get("onExitCodes")
    if wanted is None:
        return None
    values = set(wanted.get("values") or [])
    for container, code in _ended(pod):
        if wanted.get("containerName") not in (None, "", container):
            continue
        if (code in values) == (wanted.get("operator") == "In"):
            return _verdict("job_failure_policy_exit", rule, index, pod, container=container, code=code)
    return None


def _by_condition(rule: Obj, index: int, pod: Obj) -> Verdict | None:
    for pattern in rule.get("onPodConditions") or []:
        for row in status_of(pod).get("conditions") or []:
            if row.get("type") == pattern.get("type") and row.get("status") == pattern.get("status", "True"):
                return _verdict("job_failure_policy_condition", rule, index, pod, condition=row["type"])
    return None


def _verdict(words: str, rule: Obj, index: int, pod: Obj, **fields: object) -> Verdict:
    action = str(rule.get("action"))
    fields |= {
        "namespace": pod["metadata"].get("namespace", ""),
        "pod": name_of(pod),
        "action": action,
        "index": index,
    }
    return Verdict(action, words, tuple(fields.items()))


def success_rule(job: Obj, done: set[int]) -> int | None:
    """The number of the rule by which the Job has succeeded with these indexes."""
    rules = (spec_of(job).get("successPolicy") or {}).get("rules") or []
    completions = int(spec_of(job).get("completions") or 0)
    for number, rule in enumerate(rules):
        among = rule.get("succeededIndexes")
        wanted = parse_spans(str(among), completions) if among else None
        found = len(done if wanted is None else done & wanted)
        least = rule.get("succeededCount")
        if least is None:
            least = len(wanted) if wanted is not None else completions
        if found >= int(least):
            return number
    return None
