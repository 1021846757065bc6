"""The texts that both implementations print, from messages.yaml."""

from dataclasses import dataclass
from typing import Any, cast

from kube32.contract.data import load

_DATA = cast(dict[str, Any], load("messages.yaml"))


def text(section: str, name: str, /, **fields: object) -> str:
    """The text `name` of a section of messages.yaml with its {fields} filled in; KeyError when either is unknown."""
    return cast(str, _DATA[section][name]).format(**fields)


@dataclass(frozen=True, slots=True)
class EventText:
    """An event's reason, its type (Normal or Warning) and its message with {fields}."""

    reason: str
    type: str
    message: str


EVENTS: dict[str, EventText] = {
    name: EventText(e.get("reason", name), e.get("type", "Normal"), e["message"])
    for name, e in _DATA["events"].items()
}
CHECKPOINT_PHASES: tuple[str, ...] = tuple(_DATA["checkpoint_phases"])
CHECKPOINT_ACTIONS: tuple[str, ...] = tuple(_DATA["checkpoint_actions"])
# type -> status -> (reason, message with {fields}), in the order in which they are shown.
NAMESPACE_CONDITIONS: dict[str, dict[str, tuple[str, str]]] = {
    kind: {status: (words[0], words[1]) for status, words in states.items()}
    for kind, states in _DATA["namespace_conditions"].items()
}
# Name -> reason and message with {fields}.
WORKLOAD_CONDITIONS: dict[str, tuple[str, str]] = {
    name: (words[0], words[1]) for name, words in _DATA["workload_conditions"].items()
}
