"""Label and field selectors: parsed once, then asked for every object of a list or watch."""

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from kube32.api.custom.resource import CustomResource
from kube32.api.status import bad_request
from kube32.contract import Resource
from kube32.contract.data import load

Object = dict[str, Any]
Match = Callable[[Object], bool]
_LABEL_PART = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DNS = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_KEY = re.compile(rf"({_DNS}/)?{_LABEL_PART}")
_VALUE = re.compile(rf"({_LABEL_PART})?")
_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_SYMBOLS = frozenset(("=", "==", "!=", "!", "(", ")", ",", "<", ">"))
_COMMON_FIELDS = ("metadata.name", "metadata.namespace")
_SELECTABLE = cast(dict[str, list[str]], load("resources.yaml")["field_selectors"])


def match_of(resource: Resource, label_selector: str, field_selector: str) -> Match | None:
    """What both selectors accept, None for everything. ApiFailure 400 names what is wrong in them."""
    checks = [*parse_labels(label_selector), *parse_fields(resource, field_selector)]
    if not checks:
        return None
    if len(checks) == 1:
        return checks[0]
    return lambda obj: all(check(obj) for check in checks)


# --- labels ---


def parse_labels(selector: str) -> list[Match]:
    """`a=b,c!=d,e in (f,g),h,!i,j>1`: one check for each requirement."""
    if not selector.strip():
        return []
    tokens = _tokens(selector)
    checks: list[Match] = []
    while True:
        checks.append(_requirement(tokens))
        if not tokens:
            return checks
        if tokens[0] != ",":
            raise _unparsable(f"found '{tokens[0]}', expected: ',' or 'end of string'")
        tokens.pop(0)
        if not tokens:
            raise _unparsable("found '', expected: identifier after ','")


def _tokens(selector: str) -> list[str]:
    selector = selector.rstrip()
    tokens: list[str] = []
    at = 0
    while at < len(selector):
        found = _TOKEN.match(selector, at)
        assert found is not None
        tokens.append(found[1])
        at = found.end()
    return tokens


def _requirement(tokens: list[str]) -> Match:
    negated = bool(tokens) and tokens[0] == "!"
    if negated:
        tokens.pop(0)
    key = _key(tokens.pop(0) if tokens else "")
    if not tokens or tokens[0] == ",":
        return (lambda obj: key not in _labels(obj)) if negated else (lambda obj: key in _labels(obj))
    operator = tokens.pop(0)
    if negated:
        raise _unparsable(f"found '{operator}', expected: ',' or 'end of string'")
    if operator in ("=", "=="):
        value = _next_value(tokens)
        return lambda obj: _labels(obj).get(key) == value
    if operator == "!=":
        value = _next_value(tokens)
        return lambda obj: _labels(obj).get(key) != value
    if operator in ("in", "notin"):
        values = _value_set(tokens)
        if operator == "in":
            return lambda obj: _labels(obj).get(key) in values
        return lambda obj: _labels(obj).get(key) not in values
    if operator in ("<", ">"):
        return _comparison(key, operator, _next_value(tokens))
    raise _unparsable(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")


def _key(token: str) -> str:
    if token in _SYMBOLS or not token:
        raise _unparsable(f"found '{token}', expected: !, identifier, or 'end of string'")
    if len(token) > 317 or not _KEY.fullmatch(token):
        raise bad_request(
            f'unable to parse requirement: <nil>: Invalid value: "{token}": name part must consist of '
            "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
        )
    return token


def _next_value(tokens: list[str]) -> str:
    if not tokens or tokens[0] == ",":
        return ""
    token = tokens.pop(0)
    if token in _SYMBOLS:
        raise _unparsable(f"found '{token}', expected: identifier")
    return _value(token)


def _value(token: str) -> str:
    if not _VALUE.fullmatch(token):
        raise bad_request(
            f'unable to parse requirement: values[0][{token}]: Invalid value: "{token}": a valid label must '
            "be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
            "end with an alphanumeric character"
        )
    return token


def _value_set(tokens: list[str]) -> frozenset[str]:
    found = tokens.pop(0) if tokens else ""
    if found != "(":
        raise _unparsable(f"found '{found}' expected: '('")
    values = {_next_value(tokens) if tokens and tokens[0] not in (",", ")") else ""}
    while tokens and tokens[0] == ",":
        tokens.pop(0)
        values.add(_next_value(tokens) if tokens and tokens[0] not in (",", ")") else "")
    found = tokens.pop(0) if tokens else ""
    if found != ")":
        raise _unparsable(f"found '{found}', expected: ',', or ')'")
    return frozenset(values)


def _comparison(key: str, operator: str, value: str) -> Match:
    bound = _integer(value)
    if bound is None:
        raise bad_request(
            f"unable to parse requirement: values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, "
            "the value must be an integer"
        )
    limit = bound

    def check(obj: Object) -> bool:
        number = _integer(_labels(obj).get(key) or "")
        return number is not None and (number > limit if operator == ">" else number < limit)

    return check


def _integer(value: str) -> int | None:
    digits = value.removeprefix("-")
    return int(value) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def _labels(obj: Object) -> dict[str, str]:
    return cast(dict[str, str], obj["metadata"].get("labels") or {})


def _unparsable(what: str) -> Exception:
    return bad_request(f"unable to parse requirement: {what}")


# --- fields ---


def parse_fields(resource: Resource, selector: str) -> list[Match]:
    """`metadata.name=a,status.phase!=Failed`: one check for each term."""
    return [_field_check(resource, term) for term in _terms(selector) if term]


def _terms(selector: str) -> list[str]:
    """Splits at commas that no backslash precedes."""
    if "\\" not in selector:
        return selector.split(",")
    terms, current, at = [], "", 0
    while at < len(selector):
        c = selector[at]
        if c == "\\":
            current += selector[at : at + 2]
            at += 1
        elif c == ",":
            terms.append(current)
            current = ""
        else:
            current += c
        at += 1
    return [*terms, current]


def _field_check(resource: Resource, term: str) -> Match:
    for operator in ("!=", "==", "="):
        field, found, value = term.partition(operator)
        if found:
            break
    else:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    wanted = _unescape(value, term)
    if field not in _COMMON_FIELDS and field not in _selectable(resource):
        raise bad_request(f"field label not supported: {field}")
    if field == "metadata.namespace" and not resource.namespaced:
        raise bad_request(f"field label not supported: {field}")
    read = _reader(resource, field)
    if operator == "!=":
        return lambda obj: read(obj) != wanted
    return lambda obj: read(obj) == wanted


def _selectable(resource: Resource) -> Sequence[str]:
    if isinstance(resource, CustomResource):
        return resource.selectable
    return _SELECTABLE.get(resource.kind, ())


def _unescape(value: str, term: str) -> str:
    if "\\" not in value:
        if "=" in value:
            raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
        return value
    out, at = "", 0
    while at < len(value):
        if value[at] == "\\":
            at += 1
            if at >= len(value) or value[at] not in "\\,=":
                raise bad_request("invalid field selector: invalid escape sequence")
        out += value[at]
        at += 1
    return out


def _reader(resource: Resource, field: str) -> Callable[[Object], str]:
    if resource.builtin == "Event" and field == "source":
        return _event_source
    path = ("reportingComponent",) if field == "reportingComponent" else tuple(field.split("."))
    boolean = field in ("spec.unschedulable", "spec.hostNetwork", "immutable")

    def read(obj: Object) -> str:
        value: Any = obj
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            return "false" if boolean else ""
        if isinstance(value, bool):
            return "true" if value else "false"
        return value if isinstance(value, str) else str(value)

    return read


def _event_source(event: Object) -> str:
    source = (event.get("source") or {}).get("component")
    return cast(str, source or event.get("reportingComponent") or "")
