"""Regular expressions in linear time: the syntax of Go's regexp, which Kubernetes gives to users of `pattern`.

Patterns come from clients, and so do the texts: a matcher that tries one way after another can be kept busy for
hours by a few letters. This one follows all ways at once (Thompson's construction), remembers the steps that it
has made, and counts its work. Groups are not captured: the only question is whether the pattern is found.
"""

from dataclasses import dataclass, field

from kube32.api.custom.regex_syntax import (
    Alternatives,
    Assertion,
    Letters,
    PatternError,
    Repeat,
    Sequence,
    Tree,
    parse,
)

__all__ = ["PatternError", "Regex", "TooMuchWork"]
_MAX_STATES = 10_000
_REMEMBERED = 2_000


class TooMuchWork(Exception):
    """The text needs more steps than there were left."""


@dataclass(slots=True)
class _State:
    """One state: takes a letter of `letters` to `out[0]`, or goes on to `out` at once, where `assertion` holds."""

    letters: Letters | None = None
    assertion: str = ""
    out: list[int] = field(default_factory=list)


class Regex:
    """A compiled pattern. PatternError when it is none, or one that is too large."""

    __slots__ = ("_accept", "_closures", "_start", "_states", "_steps", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._states: list[_State] = []
        self._accept = self._add(_State())
        self._start = self._build(parse(pattern), self._accept)
        # (states, context) -> states that take a letter, or None when the pattern is found.
        self._closures: dict[tuple[frozenset[int], int], frozenset[int] | None] = {}
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    @property
    def size(self) -> int:
        """How many states it has."""
        return len(self._states)

    def search(self, text: str, budget: list[int]) -> bool:
        """Whether the pattern is found anywhere in `text`. Takes its steps from `budget[0]`; TooMuchWork."""
        states: frozenset[int] = frozenset((self._start,))
        before = ""
        for after in text:
            taking = self._closure(states, before, after)
            if taking is None:
                return True
            budget[0] -= 1 + len(taking) // 8
            if budget[0] < 0:
                raise TooMuchWork
            states = self._step(taking, after)
            before = after
        return self._closure(states, before, "") is None

    # --- construction ---

    def _add(self, state: _State) -> int:
        if len(self._states) >= _MAX_STATES:
            raise PatternError("expression is too large")
        self._states.append(state)
        return len(self._states) - 1

    def _build(self, tree: Tree, then: int) -> int:
        """The first state of what matches `tree` and goes on at `then`."""
        if isinstance(tree, Letters):
            return self._add(_State(letters=tree, out=[then]))
        if isinstance(tree, Assertion):
            return self._add(_State(assertion=tree.kind, out=[then]))
        if isinstance(tree, Sequence):
            for part in reversed(tree.parts):
                then = self._build(part, then)
            return then
        if isinstance(tree, Alternatives):
            return self._add(_State(out=[self._build(part, then) for part in tree.parts]))
        return self._repeat(tree, then)

    def _repeat(self, tree: Repeat, then: int) -> int:
        if tree.most is None:
            loop = self._add(_State(out=[then]))
            self._states[loop].out.append(self._build(tree.what, loop))
            then = loop
        else:
            end = then
            for _ in range(tree.most - tree.least):
                then = self._add(_State(out=[end, self._build(tree.what, then)]))
        for _ in range(tree.least):
            then = self._build(tree.what, then)
        return then

    # --- matching ---

    def _closure(self, states: frozenset[int], before: str, after: str) -> frozenset[int] | None:
        context = _context(before, after)
        key = (states, context)
        if key in self._closures:
            return self._closures[key]
        taking: set[int] = set()
        seen = set(states)
        todo = list(states)
        found = False
        while todo:
            number = todo.pop()
            state = self._states[number]
            if number == self._accept:
                found = True
                break
            if state.letters is not None:
                taking.add(number)
            elif not state.assertion or _holds(state.assertion, context):
                for following in state.out:
                    if following not in seen:
                        seen.add(following)
                        todo.append(following)
        if len(self._closures) >= _REMEMBERED:
            self._closures.clear()
        made = self._closures[key] = None if found else frozenset(taking)
        return made

    def _step(self, taking: frozenset[int], letter: str) -> frozenset[int]:
        key = (taking, letter)
        made = self._steps.get(key)
        if made is None:
            reached = {self._start}
            for number in taking:
                state = self._states[number]
                assert state.letters is not None
                if state.letters.has(letter):
                    reached.add(state.out[0])
            if len(self._steps) >= _REMEMBERED:
                self._steps.clear()
            made = self._steps[key] = frozenset(reached)
        return made


_BEGIN, _END, _WORD_BEFORE, _WORD_AFTER, _LINE_BEFORE, _LINE_AFTER = 1, 2, 4, 8, 16, 32


def _context(before: str, after: str) -> int:
    """What the letters around a place say to assertions."""
    found = 0
    if not before:
        found |= _BEGIN | _LINE_BEFORE
    elif before == "\n":
        found |= _LINE_BEFORE
    elif before.isascii() and (before.isalnum() or before == "_"):
        found |= _WORD_BEFORE
    if not after:
        found |= _END | _LINE_AFTER
    elif after == "\n":
        found |= _LINE_AFTER
    elif after.isascii() and (after.isalnum() or after == "_"):
        found |= _WORD_AFTER
    return found


def _holds(assertion: str, context: int) -> bool:
    match assertion:
        case "begin":
            return bool(context & _BEGIN)
        case "end":
            return bool(context & _END)
        case "line begin":
            return bool(context & _LINE_BEFORE)
        case "line end":
            return bool(context & _LINE_AFTER)
    at_word = bool(context & _WORD_BEFORE) != bool(context & _WORD_AFTER)
    return at_word if assertion == "word" else not at_word
