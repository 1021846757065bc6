from enum import IntEnum

from kube32.store.entry import Entry


class Persist(IntEnum):
    NEVER = 0
    HEARTBEAT = 1
    CONTROLLER = 2
    DURABLE = 3


class PersistPolicy:
    def classify(self, key: str, old: Entry | None, new: Entry | None, agent: bool) -> Persist:
        if key.startswith(("/registry/leases/", "/registry/events/")):
            return Persist.NEVER
        return Persist.CONTROLLER if agent else Persist.DURABLE
