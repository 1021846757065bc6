"""The templates that a Deployment has had: its status.history, from which ReplicaSets and rollbacks come.

A revision stands for what is a ReplicaSet in Kubernetes: a template and how many pods of it are wanted.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from kube32.contract import Limits
from kube32.controllers.objects import Obj, annotation, now_rfc3339, spec_of, status_of

REVISION = "deployment.kubernetes.io/revision"
_CAUSE = "kubernetes.io/change-cause"


@dataclass(slots=True)
class Revision:
    """One template, None when there was no room to keep it: then there are no new pods of it.

    `desired` and `most` are the Deployment's replicas, without and with surge, when it was sized.
    """

    hash: str
    number: int
    template: Obj | None
    created: str
    cause: str = ""
    replicas: int = 0
    desired: int = 0
    most: int = 0

    @classmethod
    def of_row(cls, row: Obj) -> "Revision":
        """From status.history."""
        return cls(
            hash=str(row["hash"]),
            number=int(row.get("revision") or 0),
            template=row.get("template"),
            created=str(row.get("createdAt") or ""),
            cause=str(row.get("changeCause") or ""),
            replicas=int(row.get("replicas") or 0),
            desired=int(row.get("desiredReplicas") or 0),
            most=int(row.get("maxReplicas") or 0),
        )

    def row(self) -> Obj:
        """For status.history."""
        made: dict[str, Any] = {
            "revision": self.number,
            "hash": self.hash,
            "createdAt": self.created,
        }
        more = {
            "template": self.template,
            "changeCause": self.cause,
            "replicas": self.replicas,
            "desiredReplicas": self.desired if self.replicas else 0,
            "maxReplicas": self.most if self.replicas else 0,
        }
        return made | {k: v for k, v in more.items() if v}

    @property
    def size(self) -> int:
        """Bytes that it takes in the history."""
        return len(orjson.dumps(self.row()))

    @property
    def age(self) -> tuple[str, int]:
        """Sorts revisions, the oldest first."""
        return self.created, self.number


class History:
    """The revisions of a Deployment, by number; `current` is that of its present template, when it has one.

    `hash` is the present template's.
    """

    def __init__(self, deployment: Obj, current: str) -> None:
        rows = status_of(deployment).get("history") or []
        self.revisions = sorted((Revision.of_row(r) for r in rows), key=lambda r: r.number)
        self._deployment = deployment
        self.hash = current
        # What did not fit into the history stands in the spec still.
        if self.current is not None:
            self.current.template = spec_of(deployment)["template"]

    @property
    def current(self) -> Revision | None:
        """The revision of the present template."""
        return next((r for r in self.revisions if r.hash == self.hash), None)

    @property
    def old(self) -> list[Revision]:
        """The others."""
        return [r for r in self.revisions if r.hash != self.hash]

    @property
    def hashes(self) -> set[str]:
        """All that pods of the Deployment may carry."""
        return {r.hash for r in self.revisions} | {self.hash}

    def renumber(self) -> None:
        """A template that came back gets a new number, and the newest follows the change cause."""
        current = self.current
        if current is None:
            return
        current.number = max([current.number, *(r.number + 1 for r in self.old)])
        current.cause = annotation(self._deployment, _CAUSE) or ""
        self.revisions.sort(key=lambda r: r.number)

    def begin(self) -> Revision:
        """The revision of the present template, made when it is not there."""
        if self.current is None:
            number = max((r.number for r in self.revisions), default=0) + 1
            template = spec_of(self._deployment)["template"]
            self.revisions.append(Revision(self.hash, number, template, now_rfc3339()))
        self.renumber()
        current = self.current
        assert current is not None
        return current

    def trim(self, in_use: set[str], limits: Limits) -> None:
        """Old ones go when there are too many or they are too large; those with pods, or to have some, stay."""
        keep = spec_of(self._deployment).get("revisionHistoryLimit")
        keep = limits.deployment_history if keep is None else int(keep)
        idle = [r for r in self.old if not r.replicas and r.hash not in in_use]
        gone = [r for r in idle if r.template is None]
        idle = [r for r in idle if r.template is not None]
        too_many = max(len(idle) - keep, 0)
        gone += idle[:too_many]
        size = sum(r.size for r in self.revisions if r not in gone)
        for revision in idle[too_many:]:
            if size > limits.deployment_history_bytes:
                gone.append(revision)
                size -= revision.size
        self.revisions = [r for r in self.revisions if r not in gone]

    def rows(self, limits: Limits) -> list[Obj]:
        """For status.history. Templates that do not fit are left out, first that which the spec has too."""
        size = sum(r.size for r in self.revisions)
        rows = []
        for revision in sorted(self.revisions, key=lambda r: -r.number):
            row = revision.row()
            if size > limits.deployment_history_bytes:
                row.pop("template", None)
                size -= revision.size
            rows.append(row)
        return rows[::-1]
