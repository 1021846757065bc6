"""What runs where, kept as pods come and go, is what counting them all anew would give."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kube32.controllers.load import Load

Obj = dict[str, Any]
NODES = ["", "a", "b"]


def pod(uid: str, node: str, cpu: int, owner: str, phase: str) -> Obj:
    references = [{"uid": owner}] if owner else []
    return {
        "metadata": {"name": uid, "namespace": "default", "uid": uid, "ownerReferences": references},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "m", "resources": {"requests": {"cpu": f"{cpu}m"}}}],
        },
        "status": {"phase": phase},
    }


changes = st.lists(
    st.tuples(
        st.sampled_from("vwxyz"),
        st.sampled_from(NODES),
        st.integers(0, 3),
        st.sampled_from(["", "one", "two"]),
        st.sampled_from(["Running", "Succeeded"]),
        st.booleans(),
    ),
    max_size=40,
)


@given(changes)
def test_a_load_kept_is_a_load_counted(steps: list[tuple[str, str, int, str, str, bool]]) -> None:
    kept, there = Load(), dict[str, Obj]()
    for uid, node, cpu, owner, phase, goes in steps:
        if goes:
            there.pop(uid, None)
            kept.remove(uid)
        else:
            there[uid] = pod(uid, node, cpu, owner, phase)
            kept.put(there[uid])
    counted = Load(there.values())
    for someone in [*there.values(), pod("new", "", 1, "one", "Pending")]:
        assert +kept.siblings(someone) == +counted.siblings(someone)
        for node in NODES[1:]:
            found, expected = kept.used(node, someone), counted.used(node, someone)
            assert {k: v for k, v in found.items() if v} == {k: v for k, v in expected.items() if v}


def test_a_pod_does_not_count_against_itself_and_its_owner_s_others_do() -> None:
    one, two = pod("v", "a", 2, "one", "Running"), pod("w", "a", 3, "one", "Running")
    load = Load([one, two])
    assert load.used("a", one) == {"cpu": 3, "pods": 1}
    assert +load.siblings(one) == Counter({"a": 1})
    assert load.siblings(pod("x", "", 0, "two", "Pending")) == Counter()
