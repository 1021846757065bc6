"""A pod's state between two calls, out of an instance and into one.

Specification, "What moves" and "Snapshot format". What cannot be carried is a blocker, found without side
effects.
"""

from collections.abc import Callable
from typing import Any

from kube32.contract import K32S, text
from kube32.formats.k32s import Expectation, Global, Header, HeldEvent, Snapshot, SnapshotRefused, Table
from kube32.wasm.engine import LoadedModule
from kube32.wasm.host import HostServices
from kube32.wasm.native import Memory, NativeInstance, NativeTrap
from kube32.wasm.plan import MemoryPlan
from kube32.wasm.values import (
    ForeignFunction,
    Functions,
    read_global,
    read_table,
    write_global,
    write_table,
)


class InstanceState:
    """Reads and writes the state of one instance, on the instance's thread."""

    def __init__(
        self, module: LoadedModule, native: NativeInstance, memory: Memory, plan: MemoryPlan
    ) -> None:
        self._module = module
        self._native = native
        self._memory = memory
        self._plan = plan
        hidden = module.hidden
        self._globals = [(i, t, native.export(hidden.name("g", i))) for i, t in hidden.globals]
        self._tables = [(i, native.export(hidden.name("t", i))) for i in hidden.tables]
        self._functions = Functions(native, {i: native.export(hidden.name("f", i)) for i in hidden.functions})

    def blockers(self, probe: Callable[[Any], object]) -> list[str]:
        """Dropped segments and functions of another module. `probe` calls a probe, which may trap."""
        return [*self._dropped(probe), *self._foreign()]

    def capture(self, services: HostServices, unix_ms: int, events: list[HeldEvent]) -> Snapshot:
        """The state. Its memory is a live, read-only view, which must not be read while the pod runs."""
        self._memory.refresh()
        size = self._memory.size
        return Snapshot(
            image_sha256=bytes.fromhex(self._module.digest),
            memory_bytes=size,
            memory_pages=1 if self._plan.sub_page else size // K32S.page_bytes,
            pod_time_ms=services.clock.now_ms(),
            unix_time_ms=unix_ms,
            memory=self._memory.view.toreadonly(),
            globals=[
                Global(i, t, read_global(self._native, item, t, self._functions))
                for i, t, item in self._globals
            ],
            tables=[Table(i, read_table(self._native, item, self._functions)) for i, item in self._tables],
            channels=services.channels.snapshot(),
            events=list(events),
        )

    def expectation(self) -> Expectation:
        """What a snapshot must be to fit this instance."""
        info = self._module.info
        return Expectation(
            image_sha256=bytes.fromhex(info.digest),
            memory_limit_bytes=self._plan.limit_bytes,
            memory_maximum_pages=info.memory_maximum,
            memory_minimum_pages=info.memory_minimum,
            mutable_globals=info.mutable_globals,
            tables=list(info.tables),
            function_count=len(info.functions),
            restorable_functions=frozenset(self._module.hidden.functions),
        )

    def begin_memory(self, header: Header) -> None:
        """Gives the memory its size and zeros what the snapshot does not fill. The header is checked."""
        if not self._plan.sub_page:
            pages = self._memory.size // K32S.page_bytes
            if header.memory_pages > pages:
                self._grow(header.memory_pages, pages)
        self._memory.zero(header.memory_bytes, self._memory.size)

    def write_memory(self, offset: int, data: memoryview) -> None:
        """Writes a piece of the snapshot's memory where it belongs."""
        self._memory.view[offset : offset + len(data)] = data

    def apply(self, snapshot: Snapshot, services: HostServices) -> None:
        """Sets globals, tables, clock and channels from a snapshot that has been read to its end."""
        bits = {g.index: g.bits for g in snapshot.globals}
        for index, value_type, item in self._globals:
            write_global(self._native, item, value_type, bits[index], self._functions)
        entries = {t.index: t.entries for t in snapshot.tables}
        for index, item in self._tables:
            write_table(self._native, item, entries[index], self._functions)
        services.clock.set(snapshot.pod_time_ms)
        services.channels.reopen(snapshot.channels)

    def _grow(self, wanted: int, pages: int) -> None:
        try:
            self._memory.grow(wanted - pages)
        except NativeTrap:
            # A pod below one page has its page whatever its module's maximum is; here the maximum counts.
            most = self._module.info.memory_maximum
            raise SnapshotRefused(text("refusals", "memory_maximum", found=wanted, expected=most)) from None

    def _dropped(self, probe: Callable[[Any], object]) -> list[str]:
        hidden = self._module.hidden
        found = []
        for kind, name, indexes in (
            ("d", "dropped_data", hidden.data_probes),
            ("e", "dropped_elem", hidden.elem_probes),
        ):
            for index in indexes:
                try:
                    probe(self._native.export(hidden.name(kind, index)))
                except NativeTrap:
                    found.append(text("blockers", name, index=index))
        return found

    def _foreign(self) -> list[str]:
        found = []
        for table, item in self._tables:
            try:
                read_table(self._native, item, self._functions)
            except ForeignFunction as foreign:
                found.append(text("blockers", "foreign_function", table=table, index=foreign.args[0]))
        return found
