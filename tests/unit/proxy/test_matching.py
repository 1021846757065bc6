"""Which Service a request is for, by host and path (Kubernetes, "Ingress": examples of path matching)."""

import pytest

from kube32.proxy.matching import match, path_fits
from kube32.proxy.table import Endpoint, PathRule, RouteTable, ServicePort


@pytest.mark.parametrize(
    ("kind", "wanted", "path", "fits"),
    [
        ("Prefix", "/", "/any/path", True),
        ("Exact", "/foo", "/foo", True),
        ("Exact", "/foo", "/bar", False),
        ("Exact", "/foo", "/foo/", False),
        ("Exact", "/foo/", "/foo", False),
        ("Prefix", "/foo", "/foo", True),
        ("Prefix", "/foo", "/foo/", True),
        ("Prefix", "/foo/", "/foo", True),
        ("Prefix", "/foo/", "/foo/", True),
        ("Prefix", "/aaa/bb", "/aaa/bbb", False),
        ("Prefix", "/aaa/bbb", "/aaa/bbb", True),
        ("Prefix", "/aaa/bbb/", "/aaa/bbb", True),
        ("Prefix", "/aaa/bbb", "/aaa/bbb/", True),
        ("Prefix", "/aaa/bbb", "/aaa/bbb/ccc", True),
        ("Prefix", "/aaa/bbb", "/aaa/bbbxyz", False),
        ("ImplementationSpecific", "/aaa", "/aaa/b", True),
    ],
)
def test_paths_fit_as_kubernetes_documents(kind: str, wanted: str, path: str, fits: bool) -> None:
    assert path_fits(wanted, kind, path) is fits


def rule(service: str, host: str = "", path: str = "/", kind: str = "Prefix") -> PathRule:
    return PathRule(host, path, kind, "default", service, 80)


def port(service: str, number: int = 80, namespace: str = "default") -> ServicePort:
    return ServicePort(namespace, service, "", number, 0, (Endpoint("p", "n"),))


def chosen(table: RouteTable, host: str, path: str = "/") -> str | None:
    found = match(table, host, path)
    return None if found is None else found[1]


def test_the_longest_path_wins_and_an_exact_one_before_a_prefix() -> None:
    table = RouteTable(
        (), (rule("root"), rule("long", path="/a/b"), rule("exact", path="/a/b", kind="Exact"))
    )
    assert chosen(table, "x", "/a") == "root"
    assert chosen(table, "x", "/a/b/c") == "long"
    assert chosen(table, "x", "/a/b") == "exact"


def test_a_host_goes_before_a_wildcard_and_a_wildcard_before_any() -> None:
    table = RouteTable((), (rule("any"), rule("wild", "*.foo.com"), rule("one", "bar.foo.com")))
    assert chosen(table, "bar.foo.com") == "one"
    assert chosen(table, "BAR.foo.com:8080") == "one"
    assert chosen(table, "baz.foo.com") == "wild"
    assert chosen(table, "baz.bar.foo.com") == "any"
    assert chosen(table, "foo.com") == "any"
    assert chosen(table, "[::1]:8080") == "any"


def test_a_default_backend_takes_what_no_rule_takes() -> None:
    table = RouteTable((), (rule("fallback", path=""), rule("a", "a.example")))
    assert chosen(table, "a.example") == "a"
    assert chosen(table, "b.example", "/x") == "fallback"


def test_nothing_fits_an_unknown_host() -> None:
    assert match(RouteTable((), (rule("a", "a.example"),)), "b.example", "/") is None


def test_a_service_is_reached_by_its_own_name() -> None:
    ports = (port("echo"), port("echo", 8080), port("echo", 80, "other"))
    table = RouteTable(ports, (rule("fallback", path=""),))
    assert match(table, "echo.default.svc", "/") == ("default", "echo", 80)
    assert match(table, "echo.default.svc.cluster.local:8080", "/") == ("default", "echo", 8080)
    assert match(table, "echo.other.svc:9999", "/") == ("other", "echo", 80)
    assert chosen(table, "nobody.default.svc") == "fallback"


def test_a_rule_goes_before_the_name_of_a_service() -> None:
    table = RouteTable((port("echo"),), (rule("chosen", "echo.default.svc"),))
    assert chosen(table, "echo.default.svc") == "chosen"
