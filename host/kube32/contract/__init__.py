"""The contract: every number, name, text and layout that board and simulator share, from the YAML here."""

from kube32.contract.abi import ABI, AbiExport, AbiFunction
from kube32.contract.k32l import K32L
from kube32.contract.k32s import K32S
from kube32.contract.limits import LIMITS, PROFILES, Limits, limits_for
from kube32.contract.messages import EVENTS, EventText, text
from kube32.contract.resources import (
    COMPUTED,
    METRICS,
    NAMES,
    RESOURCES,
    REVIEW,
    STORED,
    Column,
    Resource,
    Subresource,
    offers,
    resource_of,
)

# What a node and its cluster must agree on for pods to move: told at the join.
VERSIONS: dict[str, int] = {"k32s": K32S.version, "abi": ABI.version}

__all__ = [
    "ABI",
    "COMPUTED",
    "EVENTS",
    "K32L",
    "K32S",
    "LIMITS",
    "METRICS",
    "NAMES",
    "PROFILES",
    "RESOURCES",
    "REVIEW",
    "STORED",
    "VERSIONS",
    "AbiExport",
    "AbiFunction",
    "Column",
    "EventText",
    "Limits",
    "Resource",
    "Subresource",
    "limits_for",
    "offers",
    "resource_of",
    "text",
]
