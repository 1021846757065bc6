"""How much memory a pod gets: pages for a limit of a page or more, else bytes (decisions, "Modules")."""

from dataclasses import dataclass

from kube32.contract import K32S, Limits, text
from kube32.formats.wasm_module import ModuleInfo, ModuleRefused

_PAGE = K32S.page_bytes


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`limit_bytes` is what the pod may have at most; with `sub_page` it has exactly that, as one page."""

    sub_page: bool
    limit_bytes: int


def plan_memory(info: ModuleInfo, memory_limit: int | None, limits: Limits) -> MemoryPlan:
    """The plan for a module under `memory_limit` bytes, or None: the module's maximum, capped by the
    contract.

    Raises ModuleRefused when the declared minimum or a data segment does not fit.
    """
    if memory_limit is None:
        most = limits.pod_memory_default_max_bytes
        limit = most if info.memory_maximum is None else min(most, info.memory_maximum * _PAGE)
        limit = max(limit, min(_PAGE, most))
    else:
        limit = memory_limit
    sub_page = limit < _PAGE
    pages = 1 if sub_page else limit // _PAGE
    if info.memory_minimum > pages:
        cause = text(
            "module_refusals", "memory_limit", declared=info.memory_minimum, limit=limit, pages=pages
        )
        raise ModuleRefused(cause)
    exact = limit if sub_page else pages * _PAGE
    for index, segment in enumerate(info.data_segments):
        if segment.offset is not None and segment.offset + segment.length > exact:
            end = segment.offset + segment.length
            raise ModuleRefused(text("module_refusals", "data_limit", index=index, end=end, limit=limit))
    return MemoryPlan(sub_page, exact)
