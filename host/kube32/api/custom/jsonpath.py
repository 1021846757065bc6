"""The JSON paths of printer columns and selectors: Kubernetes' JSONPath without ranges over templates.

`.spec.items[0].name`, `['a']`, `[*]`, `[1:3]`, `..name`, `[?(@.type=="Ready")]`. Paths come from clients: they are
short, and the values that they visit are counted.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

Budget = list[int]
Step = Callable[[list[Any], Budget], list[Any]]
_NAME = re.compile(r"(?:\\.|[^\\.\[\]{}()'\"\s=<>!?@$,])+")
_FILTER = re.compile(
    r"""\?\(\s*@(?P<left>[^=<>!()]*?)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>.+?)\s*)?\)""", re.DOTALL
)
_SLICE = re.compile(r"(-?[0-9]{1,9})?:(-?[0-9]{1,9})?(?::([0-9]{1,9}))?")
_INDEX = re.compile(r"-?[0-9]{1,9}")
_QUOTED = re.compile(r"""'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)\"""")
_LONGEST = 1024


class PathError(ValueError):
    """What is wrong with a path."""


class JsonPath:
    """A path; `find` gives what it leads to. PathError when it cannot be read."""

    __slots__ = ("_steps", "text")

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise PathError(f"is longer than {_LONGEST} characters")
        self.text = text
        self._steps = _parse(text.strip().removeprefix("{").removesuffix("}").removeprefix("$"))

    def find(self, value: Any, budget: Budget) -> list[Any]:
        """Everything at the path, in order; what does not fit the path is left out. The values that are visited
        are taken from `budget[0]`; when it is spent there is nothing more to find.
        """
        return _follow(self._steps, value, budget)

    def first(self, value: Any, budget: Budget) -> Any:
        """The first thing at the path, None when there is nothing."""
        found = self.find(value, budget)
        return found[0] if found else None


def _follow(steps: list[Step], value: Any, budget: Budget) -> list[Any]:
    found = [value]
    for step in steps:
        budget[0] -= len(found)
        if not found or budget[0] < 0:
            return []
        found = step(found, budget)
    return found


def _parse(text: str) -> list[Step]:
    steps: list[Step] = []
    at = 0
    if text and text[0] not in ".[":
        raise PathError("must begin with a dot")
    while at < len(text):
        if text.startswith("..", at):
            at += 2
            steps.append(_descend)
            if text[at : at + 1] == "[":
                continue
            at = _named(text, at, steps)
        elif text[at] == ".":
            at += 1
            if at < len(text) and text[at] == "[":
                continue
            if at == len(text) and len(text) == 1:
                break
            at = _named(text, at, steps)
        elif text[at] == "[":
            at = _bracket(text, at, steps)
        else:
            raise PathError(f"unexpected {text[at]!r} at {at}")
    return steps


def _named(text: str, at: int, steps: list[Step]) -> int:
    if text[at : at + 1] == "*":
        steps.append(_all)
        return at + 1
    match = _NAME.match(text, at)
    if match is None:
        raise PathError(f"a field name is missing at {at}")
    steps.append(_field(re.sub(r"\\(.)", r"\1", match[0])))
    return match.end()


def _bracket(text: str, at: int, steps: list[Step]) -> int:
    match = _FILTER.match(text, at + 1)
    if match is not None and text[match.end() : match.end() + 1] == "]":
        steps.append(_filter(match["left"].strip(), match["operator"] or "", (match["right"] or "").strip()))
        return match.end() + 1
    end = _closing(text, at)
    inner = text[at + 1 : end].strip()
    if inner == "*":
        steps.append(_all)
    elif _SLICE.fullmatch(inner):
        steps.append(_slice(inner))
    else:
        steps.append(_union([part.strip() for part in _split(inner)]))
    return end + 1


def _closing(text: str, at: int) -> int:
    quote = ""
    for index in range(at + 1, len(text)):
        letter = text[index]
        if quote:
            if letter == quote and text[index - 1] != "\\":
                quote = ""
        elif letter in "'\"":
            quote = letter
        elif letter == "]":
            return index
    raise PathError("unterminated array")


def _split(text: str) -> list[str]:
    parts, last, quote = [], 0, ""
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == ",":
            parts.append(text[last:index])
            last = index + 1
    return [*parts, text[last:]]


def _union(parts: list[str]) -> Step:
    steps: list[Step] = []
    for part in parts:
        quoted = _QUOTED.fullmatch(part)
        if quoted is not None:
            steps.append(_field(_unquoted(quoted)))
        elif _INDEX.fullmatch(part):
            steps.append(_index(int(part)))
        else:
            raise PathError(f"invalid array index {part}")
    if len(steps) == 1:
        return steps[0]

    def step(values: list[Any], budget: Budget) -> list[Any]:
        budget[0] -= len(values) * len(steps)
        if budget[0] < 0:
            return []
        return [found for value in values for inner in steps for found in inner([value], budget)]

    return step


def _unquoted(match: re.Match[str]) -> str:
    return re.sub(r"\\(.)", r"\1", match[1] if match[1] is not None else match[2])


def _field(name: str) -> Step:
    return lambda values, _budget: [v[name] for v in values if isinstance(v, dict) and name in v]


def _index(number: int) -> Step:
    return lambda values, _budget: [
        v[number] for v in values if isinstance(v, list) and -len(v) <= number < len(v)
    ]


def _slice(text: str) -> Step:
    start, stop, by = (int(part) if part else None for part in (text + ":").split(":")[:3])
    if by == 0:
        raise PathError("a slice's step must not be 0")
    return lambda values, budget: _spread((v[start:stop:by] for v in values if isinstance(v, list)), budget)


def _all(values: list[Any], budget: Budget) -> list[Any]:
    return _spread((_inside(value) for value in values), budget)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _spread(lists: Iterable[list[Any]], budget: Budget) -> list[Any]:
    found: list[Any] = []
    for values in lists:
        budget[0] -= len(values)
        if budget[0] < 0:
            return []
        found += values
    return found


def _descend(values: list[Any], budget: Budget) -> list[Any]:
    found: list[Any] = []
    todo = values[::-1]
    while todo:
        budget[0] -= 1
        if budget[0] < 0:
            return []
        value = todo.pop()
        found.append(value)
        todo += _inside(value)[::-1]
    return found


def _filter(left: str, operator: str, right: str) -> Step:
    path = _parse(left)
    wanted = _literal(right) if operator else None

    def step(values: list[Any], budget: Budget) -> list[Any]:
        kept = []
        for item in _spread((v for v in values if isinstance(v, list)), budget):
            found = _follow(path, item, budget)
            if found and (not operator or _compare(found[0], operator, wanted)):
                kept.append(item)
        return kept

    return step


def _literal(text: str) -> Any:
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        return _unquoted(quoted)
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text) if _INDEX.fullmatch(text) else float(text)
    except ValueError:
        raise PathError(f"unrecognized filter value {text}") from None


def _compare(found: Any, operator: str, wanted: Any) -> bool:
    comparable = type(found) is type(wanted) or (
        isinstance(found, (int, float)) and isinstance(wanted, (int, float)) and not isinstance(wanted, bool)
    )
    if not comparable:
        return operator == "!="
    if operator == "==":
        return bool(found == wanted)
    if operator == "!=":
        return bool(found != wanted)
    if operator in ("<", "<="):
        return bool(found < wanted or (operator == "<=" and found == wanted))
    return bool(found > wanted or (operator == ">=" and found == wanted))
