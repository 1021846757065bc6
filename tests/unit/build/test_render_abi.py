"""kube32-build render abi writes the contract's ABI as a header that C takes; failures are one line."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kube32_build import abi
from kube32_build.main import app
from typer.testing import CliRunner

from kube32.contract import ABI

C_TYPES = {"i32": {"int32_t", "uint32_t", "pointer"}, "i64": {"int64_t"}}
RESULTS = {"int32_t": "i32", "int64_t": "i64", "void": "none"}


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command, as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "kube32_build.main", *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_every_host_function_is_declared_with_the_contracts_types() -> None:
    found = re.findall(r"^K32_IMPORT\((\w+)\) (\w+) (\w+)\((.*)\);$", abi.render(), re.MULTILINE)
    assert [name for name, *_ in found] == list(ABI.functions)
    for imported, result, name, params in found:
        function = ABI.functions[name]
        assert imported == name
        assert RESULTS[result] == function.result
        declared = [] if params == "void" else params.split(", ")
        assert len(declared) == len(function.params)
        for shown, (parameter, value_type) in zip(declared, function.params, strict=True):
            assert re.search(rf"\W\*?{parameter}$", shown)
            kind = "pointer" if "*" in shown else shown.split()[0]
            assert kind in C_TYPES[value_type]


def test_pointers_are_pointers_and_lengths_are_not() -> None:
    header = abi.render()
    assert "k32_log(const void *ptr, uint32_t len);" in header
    assert "k32_random(void *buf, uint32_t len);" in header
    assert "k32_req_body_read(int32_t offset, void *buf, uint32_t cap);" in header
    assert "k32_env(const void *name, uint32_t name_len, void *buf, uint32_t cap);" in header
    assert "k32_fs_seek(int32_t fd, int32_t offset, int32_t whence);" in header


def test_errors_flags_and_exports_are_there() -> None:
    header = abi.render()
    for name, value in {**ABI.errors, **ABI.file_flags, **ABI.seek}.items():
        assert re.search(rf"^#define {name} \(?{value}\)?(  //.*)?$", header, re.MULTILINE)
    for export in ABI.exports.values():
        assert f"{export.name:<13} {export.doc}" in header


def test_a_compiler_takes_the_header_as_c_and_as_cpp(tmp_path: Path) -> None:
    (tmp_path / "kube32.h").write_text(abi.render())
    for suffix in ("c", "cpp"):
        source = tmp_path / f"pod.{suffix}"
        source.write_text(
            '#include "kube32.h"\nK32_EXPORT(k32_tick) int f(void) { k32_log("x", 1); return K32_EBADF; }\n'
        )
        command = [
            sys.executable,
            "-m",
            "ziglang",
            "cc",
            "-target",
            "wasm32-freestanding",
            "-Wall",
            "-Werror",
        ]
        done = subprocess.run(
            [*command, "-c", "-o", str(tmp_path / "pod.o"), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_it_goes_to_a_file_or_to_standard_output(tmp_path: Path) -> None:
    assert run("render", "abi") == (0, abi.render(), "")
    assert run("render", "abi", "-o", str(tmp_path / "kube32.h")) == (0, "", "")
    assert (tmp_path / "kube32.h").read_text() == abi.render()


def test_a_file_that_cannot_be_written_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    target = str(tmp_path / "none" / "kube32.h")
    assert run("render", "abi", "-o", target) == (
        2,
        "",
        f"kube32-build: {target}: cannot be written: No such file or directory\n",
    )
    code, _, errors = run("render", "abi", "-o", str(tmp_path))
    assert (code, errors) == (2, f"kube32-build: {tmp_path}: cannot be written: Is a directory\n")


@pytest.mark.parametrize("arguments", [["nothing"], ["render", "nothing"], ["render", "abi", "--nothing"]])
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_help_and_version_are_there() -> None:
    help_text = CliRunner().invoke(app, ["render", "abi", "--help"])
    assert help_text.exit_code == 0
    assert "kube32.h" in help_text.output
    assert re.fullmatch(r"kube32-build \d+\.\d+\.\d+\n", CliRunner().invoke(app, ["--version"]).output)


def test_the_command_is_installed() -> None:
    script = shutil.which("kube32-build", path=str(Path(sys.executable).parent))
    assert script is not None
    assert subprocess.run([script, "--version"], capture_output=True, check=True).stdout.startswith(
        b"kube32-build "
    )
