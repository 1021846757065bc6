"""Kubernetes' syntax of names, labels and keys: each function gives the broken rules as texts, none when all
hold.
"""

import re

from kube32.contract import text

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_ENV_NAME = re.compile(r"[ -<>-~]+")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['[^']+'\]")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_WILDCARD = re.compile(r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PORT_NAME = re.compile(r"[-a-z0-9]+")
_HEADER = re.compile(r"[-A-Za-z0-9]+")
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
SUBDOMAIN_BYTES = 253
LABEL_BYTES = 63
PORT_NAME_BYTES = 15


def _said(name: str, **fields: object) -> str:
    return text("validation", name, **fields)


def _rules(value: str, form: re.Pattern[str], message: str, limit: int) -> list[str]:
    broken = [] if len(value) <= limit else [_said("too_long", limit=limit)]
    # The length comes first: the pattern never runs over megabytes.
    if broken or not form.fullmatch(value):
        broken.append(_said(message))
    return broken


def subdomain(value: str) -> list[str]:
    """A DNS-1123 subdomain, at most 253 bytes: names of most objects."""
    return _rules(value, _SUBDOMAIN, "dns_subdomain", SUBDOMAIN_BYTES)


def label(value: str) -> list[str]:
    """A DNS-1123 label, at most 63 bytes: names of namespaces, containers and volumes."""
    return _rules(value, _LABEL, "dns_label", LABEL_BYTES)


def path_segment(value: str) -> list[str]:
    """What can stand in a URL's path: names of roles and bindings ("system:discovery")."""
    if value in (".", ".."):
        return [_said("path_name", value=value)]
    return [_said("path_part", part=part) for part in ("/", "%") if part in value]


def qualified_name(value: str) -> list[str]:
    """A label or annotation key: an optional DNS subdomain and "/", then a name of at most 63 bytes."""
    parts = value.split("/")
    if len(parts) > 2:
        return [_said("qualified_form")]
    broken: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            broken.append(_said("prefix_part_empty"))
        else:
            broken += [_said("prefix_part", what=what) for what in subdomain(parts[0])]
    name = parts[-1]
    if not name:
        broken.append(_said("name_part_empty"))
    elif len(name) > LABEL_BYTES:
        broken.append(_said("name_part_long", limit=LABEL_BYTES))
    if len(name) > LABEL_BYTES or not _QUALIFIED.fullmatch(name):
        broken.append(_said("qualified_name"))
    return broken


def label_value(value: str) -> list[str]:
    """A label's value: empty, or at most 63 bytes."""
    return _rules(value, _LABEL_VALUE, "label_value", LABEL_BYTES)


def config_key(value: str) -> list[str]:
    """A key of a ConfigMap or Secret: it becomes a file name."""
    broken = _rules(value, _CONFIG_KEY, "config_key", SUBDOMAIN_BYTES)
    if value == "." or value.startswith(".."):
        broken.append(_said("config_key_dots"))
    return broken


def env_name(value: str) -> list[str]:
    """The name of an environment variable."""
    return [] if _ENV_NAME.fullmatch(value) else [_said("env_name")]


def port_name(value: str) -> list[str]:
    """The name of a port (RFC 6335): 15 characters at most, a letter at least."""
    broken = [] if len(value) <= PORT_NAME_BYTES else [_said("too_long", limit=PORT_NAME_BYTES)]
    if not _PORT_NAME.fullmatch(value):
        broken.append(_said("port_characters"))
    if not re.search(r"[a-z]", value):
        broken.append(_said("port_letter"))
    if "--" in value:
        broken.append(_said("port_hyphens"))
    if value.startswith("-") or value.endswith("-"):
        broken.append(_said("port_ends"))
    return broken


def service(value: str) -> list[str]:
    """A DNS-1035 label, at most 63 bytes: names of Services."""
    return _rules(value, _SERVICE, "dns_1035", LABEL_BYTES)


def wildcard(value: str) -> list[str]:
    """ "*." and a DNS subdomain: hosts of Ingresses."""
    return _rules(value, _WILDCARD, "dns_wildcard", SUBDOMAIN_BYTES)


def header_name(value: str) -> list[str]:
    """The name of an HTTP header."""
    return [] if _HEADER.fullmatch(value) else [_said("header_name")]


def prefixed_path(value: str) -> list[str]:
    """A domain and a path: names of controllers ("example.com/ingress")."""
    domain, _, rest = value.partition("/")
    if not domain or not rest:
        return [_said("prefixed_path")]
    broken = [_said("prefix_part", what=what) for what in subdomain(domain)]
    return broken if _PATH.fullmatch(rest) else [*broken, _said("prefixed_path_form")]


def is_subscript(path: str) -> bool:
    """Whether it names one label or annotation: "metadata.labels['app']"."""
    return _SUBSCRIPT.fullmatch(path) is not None
