"""Which Service a request is for: Ingress rules as Kubernetes matches them, then the Services' own names."""

from kube32.contract import NAMES
from kube32.proxy.table import PathRule, RouteTable

Backend = tuple[str, str, int]


def match(table: RouteTable, host: str, path: str) -> Backend | None:
    """(namespace, service, port) for a Host header and a path; None when no rule fits.

    An exact host goes before a wildcard, a wildcard before any; an exact path before a prefix, a longer path
    before a shorter one. A Service's name (<service>.<namespace>.svc) is a host too; a rule goes before it.
    """
    name, _, port = host.lower().partition(":") if not host.startswith("[") else (host.lower(), "", "")
    fitting = [
        (rank, rule)
        for rule in table.rules
        if (rank := _host_rank(rule.host, name)) and path_fits(rule.path, rule.kind, path)
    ]
    if fitting:
        _, best = max(fitting, key=lambda found: (found[0], *_path_rank(found[1])))
        if best.path or best.host or _service(table, name, port) is None:
            return best.namespace, best.service, best.port
    return _service(table, name, port)


def _host_rank(wanted: str, host: str) -> int:
    """3 for the same host, 2 for a wildcard of one label, 1 for any, 0 for none of these."""
    if not wanted:
        return 1
    if wanted.startswith("*."):
        label, dot, rest = host.partition(".")
        return 2 if dot and label and rest == wanted[2:] else 0
    return 3 if wanted == host else 0


def _path_rank(rule: PathRule) -> tuple[int, bool]:
    return len(rule.path), rule.kind == "Exact"


def path_fits(wanted: str, kind: str, path: str) -> bool:
    """Whether a path is the rule's, or below it, element by element."""
    if not wanted:
        return True
    if kind == "Exact":
        return path == wanted
    prefix = wanted.rstrip("/")
    return path == prefix or path.startswith(f"{prefix}/")


def _service(table: RouteTable, host: str, port: str) -> Backend | None:
    """A Service by its name: at the Host header's port if it has that one, else at its first."""
    for suffix in NAMES.service_domains:
        if not host.endswith(suffix):
            continue
        service, dot, namespace = host.removesuffix(suffix).partition(".")
        if not dot or "." in namespace:
            continue
        ports = [p for p in table.ports if (p.namespace, p.service) == (namespace, service)]
        chosen = next((p for p in ports if str(p.port) == port), ports[0] if ports else None)
        return None if chosen is None else chosen.key
    return None
