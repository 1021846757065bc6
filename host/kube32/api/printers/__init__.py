"""Cells of tables: what `kubectl get` shows for each kind, worded as kube-apiserver's printers word it.

A printer takes the object and the wall clock (seconds since 1970). Objects come from the store but were
written by clients, so every printer takes any shape: what is not there prints as Kubernetes prints it.
"""

from kube32.api.printers import network, nodes, objects, pods, workloads
from kube32.api.printers.base import Cell, Object, Printer, age, since
from kube32.api.printers.workloads import selector_text

__all__ = ["PRINTERS", "Cell", "Printer", "age", "row_conditions", "selector_text", "since"]

PRINTERS: dict[str, Printer] = {
    "age": age,
    **pods.PRINTERS,
    **nodes.PRINTERS,
    **workloads.PRINTERS,
    **network.PRINTERS,
    **objects.PRINTERS,
}


def row_conditions(kind: str, obj: Object) -> list[dict[str, str]]:
    """Conditions of a Table row: a pod that has ended is marked Completed."""
    return pods.row_conditions(obj) if kind == "Pod" else []
