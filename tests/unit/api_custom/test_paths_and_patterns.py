"""JSON paths of columns, and regular expressions in linear time."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube32.api.custom.columns import shown
from kube32.api.custom.jsonpath import JsonPath, PathError
from kube32.api.custom.regex import PatternError, Regex, TooMuchWork

OBJECT: dict[str, Any] = {
    "metadata": {"name": "a", "annotations": {"example.com/x": "y"}},
    "spec": {"items": [{"n": 1, "v": "one"}, {"n": 2, "v": "two"}, {"n": 3}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Live", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".metadata.name", ["a"]),
        ("{.metadata.name}", ["a"]),
        (r".metadata.annotations.example\.com/x", ["y"]),
        (".metadata.annotations['example.com/x']", ["y"]),
        (".spec.items[0].v", ["one"]),
        (".spec.items[-1].n", [3]),
        (".spec.items[*].v", ["one", "two"]),
        (".spec.items[0:2].n", [1, 2]),
        (".spec.items[0,2].n", [1, 3]),
        (".spec.items[?(@.n>1)].n", [2, 3]),
        (".spec.items[?(@.v)].n", [1, 2]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Live')].status", ["False"]),
        ("..v", ["one", "two"]),
        (".spec.nothing.at.all", []),
        (".metadata.name.x", []),
    ],
)
def test_a_path_finds(path: str, found: list[Any]) -> None:
    assert JsonPath(path).find(OBJECT, [1000]) == found


@pytest.mark.parametrize(
    "path", ["a", ".a[", ".a[x]", ".a[?(@.b==)]", ".a{", ".", "..", ".a[::0]", "." * 2000]
)
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    if path == ".":
        assert JsonPath(path).find(1, [10]) == [1]
        return
    with pytest.raises(PathError):
        JsonPath(path)


@given(st.text(alphabet=".[]*?@()'\"=<>!:,ab01-\\{} ", max_size=40))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        path = JsonPath(text)
    except PathError:
        return
    path.find(OBJECT, [1000])


def test_a_path_that_multiplies_ends() -> None:
    value: Any = 1
    for _ in range(200):
        value = [value, value]
    left = [10_000]
    assert JsonPath("..*" * 20).find(value, left) == []
    assert left[0] < 0


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        ("string", "a", "a"),
        ("string", 3, "3"),
        ("string", True, "true"),
        ("string", {"b": 1, "a": [2]}, '{"a":[2],"b":1}'),
        ("integer", 3, 3),
        ("integer", 3.7, 3),
        ("integer", "3", None),
        ("number", 3, 3.0),
        ("boolean", False, False),
        ("boolean", "false", None),
        ("date", "yesterday", "<invalid>"),
        ("date", "2026-12-01T00:00:00Z", "5m"),
        ("date", 3, None),
        ("string", None, None),
    ],
)
def test_a_cell_has_its_columns_type(kind: str, value: Any, cell: Any) -> None:
    assert shown(kind, value, now=1796083200 + 300) == cell


PATTERNS = [
    r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    r"(a|b)*c",
    r"^$",
    r"\bfoo\b",
    r"\Boo",
    r"^a{2,3}$",
    r"a{2,}b?",
    r"x*",
    r"[^a-c]+$",
    r"(?i)hEllo",
    r"^(?:a+)+$",
    r"[\w.-]+@[\w-]+",
    r"a.c",
    r"(?s)a.c",
    r"(?m)^b$",
    r"\x61\t|\.",
    r"[]a]+$",
    r"[a\-z]$",
    r"^(?P<x>ab|cd)+$",
    r"(|a)b",
]
TEXTS = ["", "a", "ab", "abc", "a-b", "foo", "a foo b", "xfoo", "aa", "aaa", "aaaa", "HELLO", "ddd", "* * * * */5",
         "a\nb", "a\nc", "b\nb", "a\t", ".", "]", "-", "abcd", "é", "me@x.y"]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_what_pythons_own_engine_matches(pattern: str) -> None:
    """The syntax that both have; Go's classes are ASCII, and its $ is the end of the text."""
    flags = re.ASCII
    python = re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", pattern) if "(?m)" not in pattern else pattern, flags)
    compiled = Regex(pattern)
    for text in TEXTS:
        assert compiled.search(text, [10_000]) == bool(python.search(text)), text


@given(st.text(alphabet="ab|*+?(){}[]^$.\\12,-dwsbpL:", max_size=30), st.text(alphabet="ab1 \n", max_size=20))
def test_any_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    try:
        compiled = Regex(pattern)
    except PatternError:
        return
    compiled.search(text, [100_000])


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"^\p{Lu}\pL*$", "Éa", True),
        (r"^\P{L}$", "1", True),
        (r"^[[:alpha:]_]+$", "ab_", True),
        (r"^[[:^digit:]]$", "1", False),
        (r"^\Qa.b\E$", "a.b", True),
        (r"^\Qa.b\E$", "axb", False),
        (r"^[^\d]$", "x", True),
        (r"\x{1F600}", "😀", True),
    ],
)
def test_what_go_has_beyond(pattern: str, text: str, found: bool) -> None:
    assert Regex(pattern).search(text, [1000]) is found


@pytest.mark.parametrize(
    "pattern", [r"(?=a)", r"(?<!a)", r"(a)\1", "a**", "a{1001}", "(", ")", "[", "[b-a]", "*a", "\\"]
)
def test_what_go_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Regex(pattern)


def test_work_is_counted() -> None:
    with pytest.raises(TooMuchWork):
        Regex("a*b").search("a" * 1000, [100])
