"""Lines of JSON out of a streamed body, as watches send them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import orjson

from kube32.client.transport import ClientResponse


async def _next(chunks: AsyncIterator[bytes], idle_s: float | None) -> bytes | None:
    async with asyncio.timeout(idle_s):
        return await anext(chunks, None)


async def json_lines(
    response: ClientResponse, idle_s: float | None = None
) -> AsyncGenerator[dict[str, Any], None]:
    """Each line of the body, parsed. TimeoutError when nothing arrives for `idle_s` seconds.

    A line that the end of the body cuts off is dropped: whoever watches asks again from what it has seen.
    """
    pending = bytearray()
    chunks = response.chunks()
    while (chunk := await _next(chunks, idle_s)) is not None:
        searched = len(pending)
        pending += chunk
        start = 0
        while (end := pending.find(b"\n", max(start, searched))) >= 0:
            line = bytes(pending[start:end])
            start = end + 1
            if line.strip():
                yield orjson.loads(line)
        del pending[:start]
