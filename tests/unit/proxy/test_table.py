"""Route tables come from the control plane and from the disk: what is none is refused, and says where."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube32.proxy.table import Endpoint, PathRule, RouteTable, ServicePort, TableError, parse

TABLE = {
    "services": [
        {
            "namespace": "default",
            "name": "echo",
            "ports": [
                {
                    "name": "http",
                    "port": 80,
                    "nodePort": 30080,
                    "endpoints": [{"pod": "echo-1", "node": "a"}],
                    "waits": True,
                }
            ],
        }
    ],
    "ingresses": [
        {
            "namespace": "default",
            "name": "web",
            "rules": [
                {"host": "Web.Example", "path": "/", "pathType": "Prefix", "service": "echo", "port": 80}
            ],
        }
    ],
}


def test_a_table_is_read() -> None:
    wanted = ServicePort("default", "echo", "http", 80, 30080, (Endpoint("echo-1", "a"),), True)
    table = parse(orjson.dumps(TABLE))
    assert table == RouteTable((wanted,), (PathRule("web.example", "/", "Prefix", "default", "echo", 80),))
    assert table.node_ports() == {30080: wanted}
    assert table.find("default", "echo", 80) == wanted
    assert table.find("default", "echo", 81) is None


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"[]", "wrong type"),
        (b'{"services": []}', "lacks 'ingresses'"),
        (
            b'{"services": [{"namespace": 1, "name": "x", "ports": [{"port": 80, "endpoints": []}]}], "ingresses": []}',
            "1 where a text",
        ),
        (
            b'{"services": [{"namespace": "", "name": "x", "ports": [{"port": 0, "endpoints": []}]}], "ingresses": []}',
            "0 where a port",
        ),
        (b'{"services": [{"namespace": "", "name": "x", "ports": 3}], "ingresses": []}', "wrong type"),
    ],
)
def test_what_is_no_table_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(TableError, match=says):
        parse(data)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["services", "ingresses", "ports", "rules", "name", "port"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(_JSON)
def test_no_json_makes_reading_a_table_crash(value: object) -> None:
    try:
        data = orjson.dumps(value)
    except TypeError:
        return
    try:
        parse(data)
    except TableError as error:
        assert "route table" in str(error)
