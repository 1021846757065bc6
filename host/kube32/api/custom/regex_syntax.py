"""The syntax of Go's regular expressions (RE2) as a tree. What Go does not have is refused with Go's words."""

import unicodedata
from dataclasses import dataclass, field

_MAX_REPEAT = 1000
_MAX_DEPTH = 100
_MAX_PATTERN = 8192
_SIMPLE = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_DIGITS = ((48, 57),)
_WORDS = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACES = ((9, 10), (12, 13), (32, 32))
_PERL = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_POSIX = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGITS,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORDS,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CATEGORIES = frozenset(
    [
        "L",
        "Lu",
        "Ll",
        "Lt",
        "Lm",
        "Lo",
        "M",
        "Mn",
        "Mc",
        "Me",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Ps",
        "Pe",
        "Pi",
        "Pf",
        "Po",
        "S",
        "Sm",
        "Sc",
        "Sk",
        "So",
        "Z",
        "Zs",
        "Zl",
        "Zp",
        "C",
        "Cc",
        "Cf",
        "Co",
        "Cs",
    ]
)
_LAST = 0x10FFFF


class PatternError(ValueError):
    """What is wrong with a pattern, worded as Go words it after "error parsing regexp: "."""


@dataclass(frozen=True, slots=True)
class Letters:
    """A set of letters: ranges of code points, and Unicode categories with a sign; `negated`: all others."""

    ranges: tuple[tuple[int, int], ...] = ()
    categories: tuple[tuple[str, bool], ...] = ()
    negated: bool = False
    folded: bool = False

    def has(self, letter: str) -> bool:
        """Whether the letter is in the set."""
        found = self._has(letter)
        if not found and self.folded:
            found = any(self._has(other) for other in (letter.lower(), letter.upper()) if len(other) == 1)
        return found != self.negated

    def _has(self, letter: str) -> bool:
        code = ord(letter)
        if any(low <= code <= high for low, high in self.ranges):
            return True
        if not self.categories:
            return False
        category = unicodedata.category(letter)
        return any(category.startswith(name) != negated for name, negated in self.categories)


@dataclass(frozen=True, slots=True)
class Assertion:
    """A place: begin, end, line begin, line end, word, no word."""

    kind: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple["Tree", ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of the parts."""

    parts: tuple["Tree", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`what` at least and at most so many times; None: without end."""

    what: "Tree"
    least: int
    most: int | None


Tree = Letters | Assertion | Sequence | Alternatives | Repeat


@dataclass(slots=True)
class _Flags:
    folded: bool = False
    lines: bool = False
    dot_all: bool = False


def parse(pattern: str) -> Tree:
    """The tree of a pattern; PatternError."""
    if len(pattern) > _MAX_PATTERN:
        raise PatternError("expression is too large")
    parser = _Parser(pattern)
    tree = parser.alternatives(_Flags(), 0)
    if not parser.ended:
        raise PatternError(f"unexpected ): `{pattern}`")
    return tree


@dataclass(slots=True)
class _Parser:
    pattern: str
    at: int = 0
    names: set[str] = field(default_factory=set)

    @property
    def ended(self) -> bool:
        return self.at >= len(self.pattern)

    def _peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def _take(self, text: str) -> bool:
        if not self._peek(text):
            return False
        self.at += len(text)
        return True

    def alternatives(self, flags: _Flags, depth: int) -> Tree:
        """Up to the ")" or the end; flags that are set inside hold to its end."""
        if depth > _MAX_DEPTH:
            raise PatternError("expression nests too deeply")
        parts = [self._sequence(flags, depth)]
        while self._take("|"):
            parts.append(self._sequence(flags, depth))
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def _sequence(self, flags: _Flags, depth: int) -> Tree:
        parts: list[Tree] = []
        while not self.ended and not self._peek("|") and not self._peek(")"):
            if self._take("\\Q"):
                parts.extend(self._quoted(flags))
                continue
            begin = self.at
            atom = self._atom(flags, depth)
            if atom is not None:
                parts.append(self._repeated(atom, begin))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quoted(self, flags: _Flags) -> list[Tree]:
        end = self.pattern.find("\\E", self.at)
        text = self.pattern[self.at :] if end < 0 else self.pattern[self.at : end]
        self.at = len(self.pattern) if end < 0 else end + 2
        return [_letter(c, flags) for c in text]

    def _repeated(self, atom: Tree, begin: int) -> Tree:
        count = 0
        while not self.ended:
            start = self.at
            bounds = self._quantifier()
            if bounds is None:
                break
            count += 1
            if count > 1:
                raise PatternError(f"invalid nested repetition operator: `{self.pattern[begin : self.at]}`")
            self._take("?")
            least, most = bounds
            if least > _MAX_REPEAT or (most or 0) > _MAX_REPEAT or (most is not None and most < least):
                raise PatternError(f"invalid repeat count: `{self.pattern[start : self.at]}`")
            atom = Repeat(atom, least, most)
        return atom

    def _quantifier(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if not self._peek("{"):
            return None
        end = self.pattern.find("}", self.at)
        least, comma, most = self.pattern[self.at + 1 : end].partition(",") if end > 0 else ("", "", "")
        numbers = [n for n in (least, most) if n]
        if not least or any(not n.isascii() or not n.isdigit() or len(n) > 6 for n in numbers):
            return None
        self.at = end + 1
        return int(least), int(least) if not comma else int(most) if most else None

    def _atom(self, flags: _Flags, depth: int) -> Tree | None:
        letter = self.pattern[self.at]
        if letter == "(":
            return self._group(flags, depth)
        if letter == "[":
            return self._set(flags)
        if letter == "\\":
            return self._escape(flags)
        self.at += 1
        if letter in "*+?":
            raise PatternError(f"missing argument to repetition operator: `{letter}`")
        if letter == ".":
            return Letters(negated=True) if flags.dot_all else Letters(((10, 10),), negated=True)
        if letter == "^":
            return Assertion("line begin" if flags.lines else "begin")
        if letter == "$":
            return Assertion("line end" if flags.lines else "end")
        return _letter(letter, flags)

    def _group(self, flags: _Flags, depth: int) -> Tree | None:
        start = self.at
        self.at += 1
        inner = _Flags(flags.folded, flags.lines, flags.dot_all)
        if self._take("?") and self._group_kind(start, flags, inner):
            return None
        tree = self.alternatives(inner, depth + 1)
        if not self._take(")"):
            raise PatternError(f"missing closing ): `{self.pattern}`")
        return tree

    def _group_kind(self, start: int, flags: _Flags, inner: _Flags) -> bool:
        """Reads what follows "(?"; True when it only sets flags, which then hold in the group around it."""
        if self._take("P<") or (
            self._peek("<") and not self._peek("<=") and not self._peek("<!") and self._take("<")
        ):
            end = self.pattern.find(">", self.at)
            name = self.pattern[self.at : end] if end >= 0 else ""
            if not name or not name.isascii() or not name.replace("_", "a").isalnum():
                raise PatternError(f"invalid named capture: `{self.pattern[start : max(end, start) + 1]}`")
            if name in self.names:
                raise PatternError(f"duplicate capture group name: `{name}`")
            self.names.add(name)
            self.at = end + 1
            return False
        on = True
        while not self.ended:
            letter = self.pattern[self.at]
            self.at += 1
            if letter == ":":
                return False
            if letter == ")":
                flags.folded, flags.lines, flags.dot_all = inner.folded, inner.lines, inner.dot_all
                return True
            if letter == "-" and on:
                on = False
            elif letter == "i":
                inner.folded = on
            elif letter == "m":
                inner.lines = on
            elif letter == "s":
                inner.dot_all = on
            elif letter != "U":
                break
        raise PatternError(f"invalid or unsupported Perl syntax: `{self.pattern[start : self.at]}`")

    def _escape(self, flags: _Flags) -> Tree:
        for text, kind in (("\\A", "begin"), ("\\z", "end"), ("\\b", "word"), ("\\B", "no word")):
            if self._take(text):
                return Assertion(kind)
        made = self._class_escape(flags)
        return made if made is not None else _letter(self._escaped_letter(), flags)

    def _class_escape(self, flags: _Flags) -> Letters | None:
        """\\d, \\W, \\pL, \\P{Lu} and the like; None when another escape follows."""
        kind = self.pattern[self.at + 1 : self.at + 2]
        if kind and kind.lower() in _PERL:
            self.at += 2
            return Letters(_PERL[kind.lower()], negated=kind.isupper())
        if kind not in ("p", "P"):
            return None
        start = self.at
        self.at += 2
        if self._take("{"):
            end = self.pattern.find("}", self.at)
            name = self.pattern[self.at : end] if end >= 0 else ""
            self.at = end + 1 if end >= 0 else len(self.pattern)
        else:
            name = self.pattern[self.at : self.at + 1]
            self.at += 1
        negated = (kind == "P") != name.startswith("^")
        if name.removeprefix("^") not in _CATEGORIES:
            raise PatternError(f"invalid character class range: `{self.pattern[start : self.at]}`")
        return Letters((), ((name.removeprefix("^"), False),), negated, flags.folded)

    def _escaped_letter(self) -> str:
        start = self.at
        self.at += 2
        letter = self.pattern[start + 1 : start + 2]
        if not letter:
            raise PatternError("trailing backslash at end of expression: ``")
        if letter in _SIMPLE:
            return _SIMPLE[letter]
        if letter == "x":
            return self._hexadecimal(start)
        if letter in "01234567":
            digits = letter
            while (
                letter == "0" and len(digits) < 3 and self.pattern[self.at : self.at + 1] in tuple("01234567")
            ):
                digits += self.pattern[self.at]
                self.at += 1
            if letter == "0":
                return chr(int(digits, 8))
        if letter.isascii() and not letter.isalnum():
            return letter
        raise PatternError(f"invalid escape sequence: `{self.pattern[start : self.at]}`")

    def _hexadecimal(self, start: int) -> str:
        if self._take("{"):
            end = self.pattern.find("}", self.at)
            digits = self.pattern[self.at : end] if end >= 0 else ""
            self.at = end + 1 if end >= 0 else len(self.pattern)
        else:
            digits = self.pattern[self.at : self.at + 2]
            self.at += 2
        try:
            code = int(digits, 16) if len(digits) in range(1, 9) and digits.isalnum() else _LAST + 1
        except ValueError:
            code = _LAST + 1
        if code > _LAST:
            raise PatternError(f"invalid escape sequence: `{self.pattern[start : self.at]}`")
        return chr(code)

    def _set(self, flags: _Flags) -> Letters:
        start = self.at
        self.at += 1
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        categories: list[tuple[str, bool]] = []
        first = True
        while first or not self._peek("]"):
            if self.ended:
                raise PatternError(f"missing closing ]: `{self.pattern[start:]}`")
            first = False
            if self._peek("[:") and (end := self.pattern.find(":]", self.at)) >= 0:
                ranges += self._posix(end)
                continue
            if self._peek("\\") and (made := self._class_escape(flags)) is not None:
                ranges += _complement(made.ranges) if made.negated and made.ranges else made.ranges
                categories += [(name, made.negated) for name, _ in made.categories]
                continue
            ranges.append(self._range())
        self.at += 1
        return Letters(tuple(ranges), tuple(categories), negated, flags.folded)

    def _posix(self, end: int) -> tuple[tuple[int, int], ...]:
        name = self.pattern[self.at + 2 : end]
        found = _POSIX.get(name.removeprefix("^"))
        if found is None:
            raise PatternError(f"invalid character class range: `{self.pattern[self.at : end + 2]}`")
        self.at = end + 2
        return tuple(_complement(found)) if name.startswith("^") else found

    def _range(self) -> tuple[int, int]:
        start = self.at
        low = self._set_letter()
        high = low
        if self._peek("-") and self.pattern[self.at + 1 : self.at + 2] not in ("", "]"):
            self.at += 1
            high = self._set_letter()
        if high < low:
            raise PatternError(f"invalid character class range: `{self.pattern[start : self.at]}`")
        return ord(low), ord(high)

    def _set_letter(self) -> str:
        if self._peek("\\"):
            return self._escaped_letter()
        letter = self.pattern[self.at]
        self.at += 1
        return letter


def _letter(letter: str, flags: _Flags) -> Letters:
    return Letters(((ord(letter), ord(letter)),), folded=flags.folded)


def _complement(ranges: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    low = 0
    for start, end in sorted(ranges):
        if start > low:
            made.append((low, start - 1))
        low = end + 1
    return [*made, (low, _LAST)]
