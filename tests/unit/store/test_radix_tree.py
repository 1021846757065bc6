"""RadixTree against a sorted dict."""

from hypothesis import given
from hypothesis import strategies as st

from kube32.store.radix_tree import RadixTree

# Few letters and a shared stem: many splits, joins and prefixes of one another. "-" and "." sort before "/".
KEYS = st.text(alphabet="ab-./é𝄞", max_size=6).map(lambda t: t if t[:1] == "b" else f"/reg/{t}")
STEPS = st.lists(st.tuples(st.sampled_from(["set", "set", "pop"]), KEYS, st.integers(1, 99)), max_size=60)


def build(steps: list[tuple[str, str, int]]) -> tuple[RadixTree[int], dict[str, int]]:
    tree: RadixTree[int] = RadixTree()
    model: dict[str, int] = {}
    for step, key, value in steps:
        if step == "set":
            assert tree.set(key, value) == model.get(key)
            model[key] = value
        else:
            assert tree.pop(key) == model.pop(key, None)
    return tree, model


@given(STEPS, KEYS)
def test_the_tree_holds_what_a_sorted_dict_holds(steps: list[tuple[str, str, int]], other: str) -> None:
    tree, model = build(steps)
    assert list(tree.items()) == sorted(model.items())
    assert len(tree) == len(model)
    assert tree.get(other) == model.get(other)
    assert all(tree.get(key) == value for key, value in model.items())


@given(STEPS, KEYS, st.integers(0, 7), st.one_of(st.just(""), KEYS), st.integers(0, 5))
def test_a_scan_gives_the_keys_of_a_prefix_in_order_after_a_key_and_up_to_a_limit(
    steps: list[tuple[str, str, int]], key: str, length: int, after: str, limit: int
) -> None:
    tree, model = build(steps)
    prefix = key[:length]
    expected = [value for k, value in sorted(model.items()) if k.startswith(prefix) and k > after]
    assert tree.scan(prefix, after, limit) == (expected[:limit] if limit else expected)
    assert tree.count(prefix) == sum(k.startswith(prefix) for k in model)


@given(STEPS)
def test_an_emptied_tree_keeps_no_nodes(steps: list[tuple[str, str, int]]) -> None:
    tree, model = build(steps)
    for key in model:
        tree.pop(key)
    assert len(tree) == 0
    assert not tree._root.children


@given(STEPS)
def test_every_inner_node_without_a_value_branches(steps: list[tuple[str, str, int]]) -> None:
    tree, _ = build(steps)
    nodes = list(tree._root.children.values())
    while nodes:
        node = nodes.pop()
        assert node.value is not None or len(node.children) > 1
        nodes.extend(node.children.values())


def test_pages_follow_one_another_without_gap_or_overlap() -> None:
    tree: RadixTree[str] = RadixTree()
    keys = sorted(f"/registry/pods/ns{i % 3}/web-{i}" for i in range(200))
    for key in reversed(keys):
        tree.set(key, key)
    pages: list[str] = []
    after = ""
    while page := tree.scan("/registry/pods/", after, 7):
        pages += page
        after = page[-1]
    assert pages == keys
