"""A container's termination message: what it wrote to the file terminationMessagePath, or the end of its log."""

import asyncio
from dataclasses import replace
from pathlib import Path

from kube32.contract import Limits, text
from kube32.kubelet.calls import Exit
from kube32.kubelet.logs import ContainerLog
from kube32.kubelet.values import Obj

_FALLBACK = "FallbackToLogsOnError"


async def with_last_words(
    exit_: Exit, container: Obj, log: ContainerLog, file: Path | None, limits: Limits
) -> Exit:
    """The exit with the container's own message, where it has one; else the node's words stand.

    After a trap the log's end is followed by what the node says of it, as a runtime's stderr would be.
    """
    if exit_.restore_failed:
        return exit_
    written = "" if file is None else await asyncio.to_thread(_take, file, limits.pod_last_words_bytes)
    if written:
        return replace(exit_, message=written)
    if exit_.code == 0 or container.get("terminationMessagePolicy") != _FALLBACK:
        return exit_
    node_says = "" if exit_.message == text("statuses", "exit", code=exit_.code) else exit_.message
    said = log.tail(limits.pod_last_log_lines, limits.pod_last_log_bytes)
    return replace(exit_, message="\n".join(filter(None, (said, node_says))) or exit_.message)


def _take(file: Path, limit: int) -> str:
    try:
        data = file.read_bytes()
        file.unlink()
    except OSError:
        return ""
    return data[:limit].decode("utf-8", "replace")
