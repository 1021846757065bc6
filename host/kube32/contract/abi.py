"""The pod ABI from abi.yaml: exports, host functions, errno values."""

from dataclasses import dataclass
from typing import Any, cast

from kube32.contract.data import load

_DATA = cast(dict[str, Any], load("abi.yaml"))


@dataclass(frozen=True, slots=True)
class AbiFunction:
    """A host function of module env. `params` are (name, type) pairs; `result` is "i32", "i64" or "none"."""

    name: str
    params: tuple[tuple[str, str], ...]
    result: str
    doc: str

    @property
    def signature(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Parameter and result types: (("i32", "i32"), ("i32",))."""
        return tuple(t for _, t in self.params), () if self.result == "none" else (self.result,)


@dataclass(frozen=True, slots=True)
class AbiExport:
    """An export that the node calls. `kind` is life-cycle, request or entry-point."""

    name: str
    kind: str
    doc: str


@dataclass(frozen=True)
class Abi:
    """The whole ABI; `errors`, `file_flags` and `seek` map the C names to their values."""

    version: int
    module: str
    memory_export: str
    functions: dict[str, AbiFunction]
    exports: dict[str, AbiExport]
    errors: dict[str, int]
    error_texts: dict[str, str]
    file_flags: dict[str, int]
    seek: dict[str, int]

    @property
    def request_exports(self) -> tuple[str, ...]:
        """Exports that make a request pod."""
        return tuple(e.name for e in self.exports.values() if e.kind == "request")

    @property
    def entry_points(self) -> tuple[str, ...]:
        """Exports that make an entry-point pod."""
        return tuple(e.name for e in self.exports.values() if e.kind == "entry-point")


ABI = Abi(
    version=_DATA["version"],
    module=_DATA["module"],
    memory_export=_DATA["memory_export"],
    functions={
        n: AbiFunction(n, tuple((p[0], p[1]) for p in f["params"]), f["result"], f["doc"])
        for n, f in _DATA["functions"].items()
    },
    exports={n: AbiExport(n, e["kind"], e["doc"]) for n, e in _DATA["exports"].items()},
    errors={n: e["value"] for n, e in _DATA["errors"].items()},
    error_texts={n: e["text"] for n, e in _DATA["errors"].items()},
    file_flags=dict(_DATA["file_flags"]),
    seek=dict(_DATA["seek"]),
)
