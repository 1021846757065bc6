"""A TCP link between two processes that a test cuts without a word: nothing passes and nobody is told."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any


class Link:
    """Listens on `port` and passes bytes to 127.0.0.1:`target`, on a thread of its own."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.connections = 0
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._ready = threading.Event()
        self._dead: set[asyncio.Task[None]] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._open.set()
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopped.wait()
        server.close()
        for task in self._pumps:
            task.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self._open.wait()
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, back), (there, writer)):
            task = self._loop.create_task(self._pump(source, sink))
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        with suppress(OSError):
            while data := await source.read(65536):
                await self._open.wait()
                if me in self._dead:
                    await self._stopped.wait()
                sink.write(data)
                await sink.drain()
        if me in self._dead:
            await self._stopped.wait()
        sink.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def cut(self) -> None:
        """Nothing passes any more, in neither direction; what is sent meanwhile waits, as for a packet that is
        sent again and again.
        """

        async def cut() -> None:
            self._open.clear()

        self._do(cut())

    def mend(self) -> None:
        """Everything goes on."""

        async def mend() -> None:
            self._open.set()

        self._do(mend())

    def forget(self) -> None:
        """The connections that are there never pass a byte again and are never closed; new ones work."""

        async def forget() -> None:
            self._dead |= self._pumps
            self._open.set()

        self._do(forget())

    def close(self) -> None:
        """Ends the link."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
