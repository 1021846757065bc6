"""docs/pod-abi.md is true: its commands make a pod, its table is the contract's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kube32.contract import ABI
from kube32.formats.wasm_module import ModuleRefused, parse_module

DOC = (Path(__file__).parents[3] / "docs" / "pod-abi.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOC, re.DOTALL)


def test_the_first_pod_compiles_with_the_ziglang_commands(tmp_path: Path) -> None:
    (source,) = blocks("c")
    (tmp_path / "hello.c").write_text(source)
    (commands,) = [block for block in blocks("sh") if "ziglang" in block]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)
    info = parse_module((tmp_path / "hello.wasm").read_bytes())
    assert (info.kind, info.abi_exports) == ("request", ("k32_handle",))
    assert info.memory_maximum == 1


def test_the_table_lists_the_contracts_functions() -> None:
    rows = re.findall(r"^\| `(k\w+)` \| ([\w, ]*) ?\| ?(i32|i64|) ?\| .*\|$", DOC, re.MULTILINE)
    found = {
        name: ([p for p in params.strip().split(", ") if p], result or "none")
        for name, params, result in rows
    }
    assert found == {f.name: ([n for n, _ in f.params], f.result) for f in ABI.functions.values()}


def test_every_export_and_error_is_named() -> None:
    for name in ABI.exports:
        assert f"`{name}`" in DOC
    for name, value in ABI.errors.items():
        assert re.search(rf"`{value}`\s+{ABI.error_texts[name]}".replace(" ", r"\s+"), DOC)


def test_the_refusal_that_it_quotes_is_the_real_one() -> None:
    imports = b"\1\x16wasi_snapshot_preview1\x08fd_write\0\0"
    module = b"\0asm\1\0\0\0\1\x04\1\x60\0\0\2" + bytes([len(imports)]) + imports
    with pytest.raises(ModuleRefused) as refusal:
        parse_module(module)
    assert f"`{refusal.value}`" in DOC
