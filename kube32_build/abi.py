"""kube32.h: the pod ABI of the contract as a C header."""

from dataclasses import dataclass
from itertools import zip_longest

from kube32.contract import ABI, AbiFunction
from kube32_build.templating import environment

_RESULTS = {"i32": "int32_t", "i64": "int64_t", "none": "void"}
_WRITTEN_BY_HOST = "buf"


@dataclass(frozen=True, slots=True)
class Prototype:
    """A host function as C declares it."""

    name: str
    result: str
    params: str
    doc: str


def render() -> str:
    """The whole text of kube32.h."""
    template = environment().get_template("kube32.h.j2")
    return template.render(abi=ABI, prototypes=[_prototype(f) for f in ABI.functions.values()])


def _prototype(function: AbiFunction) -> Prototype:
    """The C declaration. What a length follows is a pointer: (name, name_len), (ptr, len), (buf, cap)."""
    names = [name for name, _ in function.params]
    shown = []
    for name, after in zip_longest(names, names[1:]):
        if after in (f"{name}_len", "len", "cap"):
            shown.append(f"void *{name}" if name == _WRITTEN_BY_HOST else f"const void *{name}")
        elif name.endswith("len") or name == "cap":
            shown.append(f"uint32_t {name}")
        else:
            shown.append(f"int32_t {name}")
    return Prototype(function.name, _RESULTS[function.result], ", ".join(shown) or "void", function.doc)
