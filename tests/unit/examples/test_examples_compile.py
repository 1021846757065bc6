"""The pods of examples/ compile with the compiler that is there; the committed modules are what they say."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import wasmtime
import yaml

from kube32.contract import LIMITS, NAMES
from kube32.formats.duration import parse_ms
from kube32.formats.wasm_module import ModuleInfo, parse_module

EXAMPLES = Path(__file__).parents[3] / "examples"
BUILD = runpy.run_path(str(EXAMPLES / "build.py"))
NAMES_OF_ALL = ("counter", "echo", "entry", "events", "hello")
KIND = {
    "counter": "request",
    "echo": "request",
    "entry": "entry-point",
    "events": "request",
    "hello": "entry-point",
}
ABI_EXPORTS = {
    "counter": {"k32_init", "k32_handle", "k32_tick", "k32_restored"},
    "echo": {"k32_handle"},
    "entry": {"_start"},
    "hello": {"main"},
    "events": {"k32_handle", "k32_event"},
}


def committed(name: str) -> bytes:
    return (EXAMPLES / name / f"{name}.wasm").read_bytes()


def manifest(name: str) -> dict[str, Any]:
    """The example's pod, or its Job's template under the Job's name."""
    pod = EXAMPLES / name / "pod.yaml"
    if pod.exists():
        parsed: dict[str, Any] = yaml.safe_load(pod.read_text())
        return parsed
    job = yaml.safe_load((EXAMPLES / name / "job.yaml").read_text())
    return {"apiVersion": "v1", "kind": "Pod", "metadata": job["metadata"], **job["spec"]["template"]}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made: dict[str, Path] = BUILD["build"](BUILD["names"](), tmp_path_factory.mktemp("modules"))
    return made


def interface(info: ModuleInfo) -> tuple[object, ...]:
    """What a pod shows outside: kind, exports, imports, memory and mutable globals."""
    return (
        info.kind,
        set(info.exports),
        {i.name for i in info.imports},
        (info.memory_minimum, info.memory_maximum),
        [t for _, t in info.mutable_globals],
    )


def test_every_example_is_known() -> None:
    assert BUILD["names"]() == list(NAMES_OF_ALL)


@pytest.mark.parametrize("name", NAMES_OF_ALL)
def test_a_committed_module_is_a_pod_of_one_page_that_can_be_embedded(name: str) -> None:
    module = committed(name)
    info = parse_module(module)
    wasmtime.Module.validate(wasmtime.Engine(), module)
    assert info.kind == KIND[name]
    assert set(info.abi_exports) == ABI_EXPORTS[name]
    assert (info.memory_minimum, info.memory_maximum) == (1, 1)
    assert len(module) <= LIMITS.module_embedded_bytes


@pytest.mark.parametrize("name", NAMES_OF_ALL)
def test_a_newly_compiled_module_shows_what_the_committed_one_does(
    name: str, compiled: dict[str, Path]
) -> None:
    assert interface(parse_module(compiled[name].read_bytes())) == interface(parse_module(committed(name)))


def test_the_stack_lies_below_the_data() -> None:
    for name in NAMES_OF_ALL:
        offsets = [d.offset for d in parse_module(committed(name)).data_segments]
        assert all(offset is not None and offset >= 4096 for offset in offsets)


def test_the_counter_keeps_state_in_a_global_of_its_own_and_in_a_table() -> None:
    info = parse_module(committed("counter"))
    assert len(info.mutable_globals) == 2
    assert info.tables[0].minimum > 1
    assert info.elem_segments[0].length == 3


@pytest.mark.parametrize("name", NAMES_OF_ALL)
def test_a_manifest_names_its_module_and_room_for_it(name: str) -> None:
    pod = manifest(name)
    (container,) = pod["spec"]["containers"]
    assert (pod["apiVersion"], pod["kind"], pod["metadata"]["name"]) == ("v1", "Pod", name)
    assert container["image"] == f"{NAMES.image_prefix}{name}"
    assert container["resources"]["limits"]["memory"] == "64Ki"


def test_the_manifests_annotations_are_the_contracts() -> None:
    assert manifest("events")["metadata"]["annotations"] == {NAMES.ann_topics: "news,alerts"}
    tick = manifest("counter")["metadata"]["annotations"][NAMES.ann_tick_interval]
    assert parse_ms(tick) >= LIMITS.pod_tick_min_ms


def test_a_compiler_error_is_told_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "bad.c").write_text("int broken(void) { return }\n")
    build = BUILD["build"]
    monkeypatch.setitem(build.__globals__, "HERE", tmp_path)
    with pytest.raises(SystemExit, match=r"bad\.c: .*expected expression"):
        build(["bad"])
