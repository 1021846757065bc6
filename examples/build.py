"""Compiles the pods of this folder to WebAssembly with clang, or with ziglang from PyPI where clang cannot.

    python examples/build.py [NAME ...] [--out DIR]

Each examples/NAME/NAME.c becomes NAME.wasm beside it, or in DIR. kube32.h comes from the contract.
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kube32_build import abi

HERE = Path(__file__).resolve().parent
# No feature beyond those that need not be named in a longer encoding (clang's defaults would).
COMPILE = ["-std=c17", "-Os", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-builtin", "-c"]
CLANG = ["--target=wasm32", "-mcpu=mvp", "-msign-ext", "-mbulk-memory", "-mmutable-globals"]
ZIG = ["-target", "wasm32-freestanding", "-mcpu=mvp+sign_ext+bulk_memory+mutable_globals"]
# One page of memory, with the 4 KiB stack at its bottom so that an overflow traps and overwrites nothing.
LINK = [
    *("--no-entry", "--initial-memory=65536", "--max-memory=65536"),
    *("-z", "stack-size=4096", "--stack-first", "--strip-all"),
]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A C compiler and a linker, as the beginnings of their command lines."""

    compile: list[str]
    link: list[str]

    def build(self, source: Path, target: Path, includes: list[Path], scratch: Path) -> str:
        """Makes `target`; what the tools complained about, "" when they did not."""
        object_file = scratch / f"{source.stem}.o"
        includes_flags = [f"-I{folder}" for folder in includes]
        steps = (
            [*self.compile, *COMPILE, *includes_flags, "-o", str(object_file), str(source)],
            [*self.link, *LINK, "-o", str(target), str(object_file)],
        )
        for step in steps:
            run = subprocess.run(step, capture_output=True, text=True, check=False)
            if run.returncode != 0:
                return run.stderr.strip() or f"{step[0]} ended with {run.returncode}"
        return ""


def names() -> list[str]:
    """The examples that are there."""
    return sorted(p.parent.name for p in HERE.glob("*/*.c") if p.stem == p.parent.name)


def toolchains() -> list[Toolchain]:
    """What may compile for wasm32 here, best first."""
    found = []
    for suffix in ("", "-22", "-21", "-20", "-19", "-18"):
        compiler, linker = shutil.which(f"clang{suffix}"), shutil.which(f"wasm-ld{suffix}")
        if compiler and linker:
            found.append(Toolchain([compiler, *CLANG], [linker]))
    if importlib.util.find_spec("ziglang"):
        zig = [sys.executable, "-m", "ziglang"]
        found.append(Toolchain([*zig, "cc", *ZIG], [*zig, "wasm-ld"]))
    return found


def find_toolchain(scratch: Path) -> Toolchain | None:
    """The first that really makes a module: many a clang lacks the target."""
    probe = scratch / "probe.c"
    probe.write_text("int probe(void) { return 1; }\n")
    return next((t for t in toolchains() if not t.build(probe, scratch / "probe.wasm", [], scratch)), None)


def build(wanted: list[str], out: Path | None = None) -> dict[str, Path]:
    """Compiles the named examples; gives the modules' paths. SystemExit with one line when it cannot."""
    made: dict[str, Path] = {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / "kube32.h").write_text(abi.render())
        toolchain = find_toolchain(scratch)
        if toolchain is None:
            raise SystemExit("no C compiler for wasm32: install clang with lld, or `pip install ziglang`")
        for name in wanted:
            source = HERE / name / f"{name}.c"
            made[name] = (out or HERE / name) / f"{name}.wasm"
            complaint = toolchain.build(source, made[name], [scratch, HERE / "include"], scratch)
            if complaint:
                raise SystemExit(f"{source}: {complaint}")
            made[name].chmod(0o644)  # linkers make it executable, which it is not
    return made


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="examples to compile (default: all)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to put the modules")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(names()))
    if unknown:
        parser.error(f"no such example: {', '.join(unknown)}; there are {', '.join(names())}")
    for name, path in build(arguments.names or names(), arguments.out).items():
        print(f"{name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
