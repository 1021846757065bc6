"""A pod's status as the server has it: what was not answered is not taken for written, nor for not written."""

import asyncio
from typing import Any

from kube32.client.transport import TransportError
from kube32.kubelet.status_writer import StatusWriter

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}}


class Server:
    """Takes every write; the answer of those in `unanswered` (counted from 1) is lost."""

    def __init__(self, *unanswered: int) -> None:
        self.written: list[str] = []
        self.unanswered = unanswered
        self.lost = asyncio.Event()

    async def patch(self, kind: str, name: str, patch: Any, namespace: str, *, subresource: str) -> Any:
        assert (kind, name, namespace, subresource) == ("Pod", "p", "default", "status")
        self.written.append(patch["status"]["phase"])
        if len(self.written) in self.unanswered:
            self.lost.set()
            raise TransportError("the connection broke")
        return POD


async def test_a_status_that_returns_to_what_it_was_is_written_when_a_write_between_had_no_answer() -> None:
    server = Server(2)
    phases = ["Running"]
    writer = StatusWriter(server, POD, lambda: {"phase": phases[-1]}, lambda pod: None)  # type: ignore[arg-type]
    writer.changed()
    await writer.clean.wait()
    phases.append("Pending")
    writer.changed()
    await server.lost.wait()
    phases.append("Running")
    await writer.clean.wait()
    assert server.written == ["Running", "Pending", "Running"]


async def test_a_status_that_did_not_change_is_not_written_again() -> None:
    server = Server()
    writer = StatusWriter(server, POD, lambda: {"phase": "Running"}, lambda pod: None)  # type: ignore[arg-type]
    for _ in range(3):
        writer.changed()
        await writer.clean.wait()
    assert server.written == ["Running"]


async def test_a_status_that_somebody_else_overwrote_is_written_again_as_it_is() -> None:
    server = Server()
    writer = StatusWriter(server, POD, lambda: {"phase": "Running"}, lambda pod: None)  # type: ignore[arg-type]
    writer.changed()
    await writer.clean.wait()
    writer.overwritten()
    await writer.clean.wait()
    assert server.written == ["Running", "Running"]
