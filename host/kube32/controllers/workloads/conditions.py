"""Conditions of workloads, in the contract's words: what says the same as before keeps its times."""

from collections.abc import Mapping

from kube32.contract.messages import WORKLOAD_CONDITIONS
from kube32.controllers.objects import Obj, now_rfc3339


class Conditions:
    """A status's conditions by type. Each keeps its place."""

    def __init__(self, status: Obj) -> None:
        self._rows: dict[str, Obj] = {str(c.get("type")): c for c in status.get("conditions") or []}

    def reason(self, kind: str) -> str:
        """The condition's reason, "" when there is none."""
        return str(self._rows.get(kind, {}).get("reason") or "")

    def status(self, kind: str) -> str:
        """True, False or Unknown; "" when there is no such condition."""
        return str(self._rows.get(kind, {}).get("status") or "")

    def message(self, kind: str) -> str:
        """The condition's message, "" when there is none."""
        return str(self._rows.get(kind, {}).get("message") or "")

    def copy(self, kind: str, other: str) -> None:
        """Sets another condition to what this one says, as of now."""
        now = now_rfc3339()
        stamps = {name: now for name in self._rows[kind] if name.endswith("Time")}
        self._rows[other] = {**self._rows[kind], **stamps, "type": other}

    def drop(self, kind: str) -> None:
        """Removes one."""
        self._rows.pop(kind, None)

    def put(
        self,
        kind: str,
        status: str,
        words: str,
        fields: Mapping[str, object] | None = None,
        *,
        stamp: str = "lastUpdateTime",
        always: bool = False,
    ) -> bool:
        """Sets one; whether it is another than before. `always` renews the stamp of one that says the same."""
        reason, message = WORKLOAD_CONDITIONS[words]
        old = self._rows.get(kind, {})
        if not always and (old.get("status"), old.get("reason")) == (status, reason):
            return False
        now = now_rfc3339()
        since = old.get("lastTransitionTime", now) if old.get("status") == status else now
        self._rows[kind] = {
            "type": kind,
            "status": status,
            stamp: now,
            "lastTransitionTime": since,
            "reason": reason,
            "message": message.format(**(fields or {})),
        }
        return True

    def rows(self) -> list[Obj]:
        """For the status."""
        return list(self._rows.values())
