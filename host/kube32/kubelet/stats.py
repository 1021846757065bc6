"""/stats: what the node and its containers use, for metrics.k8s.io: CPU time in total, linear memory now."""

import time
from typing import Any

from kube32.kubelet.registry import Registry

Obj = dict[str, Any]
# About when the process began.
_BEGAN_NS = time.monotonic_ns()


def stats(registry: Registry) -> Obj:
    """CPU times in ns since each container's start, memory in bytes, the node's clock in ms.

    The node's CPU time is its process's, the kubelet's own work included.
    """
    pods: list[Obj] = [
        {
            "namespace": worker.key[0],
            "name": worker.key[1],
            "uid": worker.uid,
            "containers": [
                {"name": c.name, "cpuNanos": c.cpu_ns, "memoryBytes": c.memory_bytes}
                for c in worker.everything
                if c.thread is not None and not c.thread.ended
            ],
        }
        for worker in registry.all()
    ]
    memory = sum(c["memoryBytes"] for p in pods for c in p["containers"])
    return {
        "node": {
            "cpuNanos": time.process_time_ns(),
            "memoryBytes": memory,
            "uptimeMs": (time.monotonic_ns() - _BEGAN_NS) // 1_000_000,
        },
        "pods": [p for p in pods if p["containers"]],
        "monotonicMs": time.monotonic_ns() // 1_000_000,
    }
