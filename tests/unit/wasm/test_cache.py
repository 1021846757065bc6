"""Compiled modules on disk: found again, and a damaged file is never run."""

from pathlib import Path

import pytest
import wasmtime

from kube32.contract import LIMITS
from kube32.wasm import ChannelHub, Engine, FileTable, HostServices, Instance, PodClock

WASM = bytes(
    wasmtime.wat2wasm(
        """(module (memory (export "memory") 1)
           (func (export "k32_tick") (result i32) (i32.add (memory.size) (i32.const 41))))"""
    )
)


def answer(
    directory: Path, files: int = 256, wasm: bytes = WASM, memory_limit: int | None = None
) -> int | None:
    """What a pod says on a new engine over this cache."""
    limits = LIMITS.replace(module_cache_files=files)
    engine = Engine(limits, directory)
    services = HostServices(
        log=lambda line: None,
        clock=PodClock(),
        unix_ms=lambda: 0,
        env={},
        channels=ChannelHub(limits).attach("ns", "pod"),
        files=FileTable(limits),
        publish=lambda topic, payload: 0,
    )
    module = engine.load(wasm)
    pod = Instance.start(module, limits=limits, memory_limit=memory_limit, services=services)
    try:
        return pod.call("k32_tick", timeout_ms=None)
    finally:
        pod.close()
        engine.close()


def test_a_module_is_compiled_once_for_pages_and_once_for_bytes(tmp_path: Path) -> None:
    assert [answer(tmp_path, memory_limit=limit) for limit in (None, 65536, 100, 2000, 1 << 20)] == [42] * 5
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    made = [f.read_bytes() for f in files]
    assert answer(tmp_path) == 42
    assert [f.read_bytes() for f in files] == made


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "flipped digest", "foreign", "directory"])
def test_a_damaged_file_is_ignored_and_made_again(tmp_path: Path, damage: str) -> None:
    assert answer(tmp_path) == 42
    (file,) = tmp_path.iterdir()
    good = file.read_bytes()
    bad = {
        "cut": good[: len(good) // 2],
        "empty": b"",
        "flipped": good[:-100] + bytes([good[-100] ^ 1]) + good[-99:],
        "flipped digest": bytes([good[0] ^ 1]) + good[1:],
        "foreign": b"\x7fELF" * 100,
    }
    file.unlink()
    if damage == "directory":
        file.mkdir()
    else:
        file.write_bytes(bad[damage])
    assert answer(tmp_path) == 42
    if damage != "directory":
        assert file.read_bytes()[32:] and file.read_bytes() != bad[damage]
    assert [f.suffix for f in tmp_path.iterdir()] == [".cwasm"]


def test_the_cache_keeps_so_many_files(tmp_path: Path) -> None:
    for number in range(5):
        tick = f'(func (export "k32_tick") (result i32) (i32.const {number}))'
        wat = f'(module (memory (export "memory") 1) {tick})'
        assert answer(tmp_path, files=3, wasm=bytes(wasmtime.wat2wasm(wat))) == number
    assert len(list(tmp_path.iterdir())) == 3


def test_a_directory_that_takes_nothing_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert answer(tmp_path / "file" / "below") == 42


def test_the_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    answer(tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    assert (file.stat().st_mode & 0o077, file.parent.stat().st_mode & 0o077) == (0, 0)


def test_one_engine_loads_a_module_once(tmp_path: Path) -> None:
    engine = Engine(LIMITS, tmp_path)
    first = engine.load(WASM)
    assert engine.load(bytes(bytearray(WASM))) is first
    engine.close()
