"""The JSON paths of printer columns and selectors: Kubernetes' JSONPath without ranges over templates.

`.spec.items[0].name`, `['a']`, `[*]`, `[1:3]`, `..name`, `[?(@.type=="Ready")]`. Paths come from clients: they are
short (a limit of the contract holds for the definition), and what they collect is bounded.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Step = Callable[[Iterable[Any]], Iterator[Any]]
_NAME = re.compile(r"(?:\\.|[^\\.\[\]{}()'\"\s=<>!?@$,])+")
_FILTER = re.compile(
    r"""\?\(\s*@(?P<left>[^=<>!()]*?)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>.+?)\s*)?\)""", re.DOTALL
)
_SLICE = re.compile(r"(-?[0-9]{1,9})?:(-?[0-9]{1,9})?(?::([0-9]{1,9}))?")
_INDEX = re.compile(r"-?[0-9]{1,9}")
_QUOTED = re.compile(r"""'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)\"""")
_LONGEST = 1024
_MOST = 10_000


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

    def find(self, value: Any) -> list[Any]:
        """Everything at the path, in order; what does not fit the path is left out."""
        found: Iterable[Any] = (value,)
        for step in self._steps:
            found = step(found)
        made = []
        for item in found:
            made.append(item)
            if len(made) == _MOST:
                break
        return made

    def first(self, value: Any) -> Any:
        """The first thing at the path, None when there is nothing."""
        found: Iterable[Any] = (value,)
        for step in self._steps:
            found = step(found)
        return next(iter(found), None)


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
            steps.append(_field(re.sub(r"\\(.)", r"\1", quoted[1] if quoted[1] is not None else quoted[2])))
        elif _INDEX.fullmatch(part):
            steps.append(_index(int(part)))
        else:
            raise PathError(f"invalid array index {part}")
    if len(steps) == 1:
        return steps[0]

    def step(values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            for inner in steps:
                yield from inner((value,))

    return step


def _field(name: str) -> Step:
    def step(values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if isinstance(value, dict) and name in value:
                yield value[name]

    return step


def _index(number: int) -> Step:
    def step(values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if isinstance(value, list) and -len(value) <= number < len(value):
                yield value[number]

    return step


def _slice(text: str) -> Step:
    start, stop, by = (int(part) if part else None for part in (text + ":").split(":")[:3])
    if by == 0:
        raise PathError("a slice's step must not be 0")

    def step(values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            if isinstance(value, list):
                yield from value[start:stop:by]

    return step


def _all(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list):
            yield from value


def _descend(values: Iterable[Any]) -> Iterator[Any]:
    todo = list(values)[::-1]
    while todo:
        value = todo.pop()
        yield value
        if isinstance(value, dict):
            todo.extend(list(value.values())[::-1])
        elif isinstance(value, list):
            todo.extend(value[::-1])


def _filter(left: str, operator: str, right: str) -> Step:
    path = _parse(left)
    wanted = _literal(right) if operator else None

    def first(value: Any) -> Any:
        found: Iterable[Any] = (value,)
        for inner in path:
            found = inner(found)
        return next(iter(found), _NOTHING)

    def step(values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            for item in value if isinstance(value, list) else ():
                found = first(item)
                if found is not _NOTHING and (not operator or _compare(found, operator, wanted)):
                    yield item

    return step


_NOTHING: Any = object()


def _literal(text: str) -> Any:
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        return re.sub(r"\\(.)", r"\1", quoted[1] if quoted[1] is not None else quoted[2])
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
