"""Load: watchers see every change once and in order while others write, long lists come in pages, caps answer 429.

`KUBE32_LOAD_SECONDS` sets how long the writers write (`make load`: 60).
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from kube32.contract import LIMITS
from tests.conftest import SimCluster

SECONDS = float(os.environ.get("KUBE32_LOAD_SECONDS", "10"))
WRITES_PER_S = 200
WATCHERS = 8
WRITERS = 8
NAMES = 20
OBJECTS = 10_000
MAPS = "/api/v1/namespaces/load/configmaps"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    """A control plane for this file alone."""
    cluster = SimCluster(tmp_path_factory.mktemp("load"))
    try:
        cluster.control_plane()
        cluster.kubectl("create", "namespace", "load")
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
async def session(loaded: SimCluster) -> AsyncIterator[aiohttp.ClientSession]:
    """HTTPS to it, as the admin."""
    host, port, token, context = loaded.access
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(f"https://{host}:{port}", connector=connector, headers=headers) as made:
        yield made


@dataclass
class Watcher:
    """Follows all ConfigMaps; after a 410 or an end it lists again, as clients do."""

    session: aiohttp.ClientSession
    seen: dict[str, list[int]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    relists: int = 0
    faults: list[str] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            version = await self.list()
            try:
                await self.watch(version)
            except (aiohttp.ClientError, asyncio.IncompleteReadError):
                pass
            self.relists += 1

    async def list(self) -> str:
        async with self.session.get(MAPS) as answer:
            found = await answer.json()
        for item in found["items"]:
            name, number = item["metadata"]["name"], int((item.get("data") or {}).get("n", -1))
            if number < self.last.get(name, -1):
                self.faults.append(f"a list shows {name} {number} after {self.last[name]}")
            self.last[name] = number
        return str(found["metadata"]["resourceVersion"])

    async def watch(self, version: str) -> None:
        query = f"?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        async with self.session.get(MAPS + query, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            assert answer.status == 200
            async for line in answer.content:
                frame = json.loads(line)
                if frame["type"] == "ERROR":
                    assert frame["object"]["code"] == 410
                    return
                if frame["type"] != "BOOKMARK" and "data" in frame["object"]:
                    self.take(frame["object"])

    def take(self, obj: dict[str, Any]) -> None:
        name, number = obj["metadata"]["name"], int(obj["data"].get("n", -1))
        before = self.last.get(name, -1)
        # Every write of a name is its number after the one before: none is left out, none comes twice.
        if number != before + 1:
            self.faults.append(f"{name} {number} after {before}")
        self.last[name] = number


async def write(session: aiohttp.ClientSession, names: list[str], until: float, start: int) -> int:
    """Writes its names in turn, 200 a second for all writers together; how often each was written."""
    period, number = WRITERS / WRITES_PER_S * len(names), start
    while time.monotonic() < until:
        begun = time.monotonic()
        number += 1
        for name in names:
            body = {"data": {"n": str(number)}}
            headers = {"Content-Type": "application/merge-patch+json"}
            async with session.patch(f"{MAPS}/{name}", json=body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
        await asyncio.sleep(max(period - (time.monotonic() - begun), 0))
    return number


async def test_watchers_see_every_change_once_and_in_order(session: aiohttp.ClientSession) -> None:
    names = [f"written-{n:02}" for n in range(NAMES)]
    for name in names:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": "0"}}
        async with session.post(MAPS, json=body) as answer:
            assert answer.status == 201
    watchers = [Watcher(session) for _ in range(WATCHERS)]
    tasks = [asyncio.create_task(w.run()) for w in watchers]
    await asyncio.sleep(0.5)
    shares = [names[n::WRITERS] for n in range(WRITERS)]
    until = time.monotonic() + SECONDS
    written = await asyncio.gather(*(write(session, share, until, 0) for share in shares))
    wanted = {name: count for share, count in zip(shares, written, strict=True) for name in share}
    for _ in range(200):
        if all({n: w.last.get(n) for n in names} == wanted for w in watchers):
            break
        await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    assert [w.faults for w in watchers] == [[]] * WATCHERS
    assert all({n: w.last.get(n) for n in names} == wanted for w in watchers)
    assert sum(wanted.values()) > SECONDS * WRITES_PER_S / 4, "the writers did not write"


async def test_ten_thousand_objects_list_in_pages(session: aiohttp.ClientSession) -> None:
    async def create(numbers: range) -> None:
        for number in numbers:
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"page-{number:05}", "labels": {"page": "yes"}},
            }
            async with session.post(MAPS, json=body) as answer:
                assert answer.status == 201, await answer.text()

    share = OBJECTS // WRITERS
    await asyncio.gather(*(create(range(n * share, (n + 1) * share)) for n in range(WRITERS)))
    for limit in ("", "&limit=700"):
        found, token, pages = [], "", 0
        while True:
            more = f"&continue={token}" if token else ""
            async with session.get(f"{MAPS}?labelSelector=page%3Dyes{limit}{more}") as answer:
                assert answer.status == 200
                page = await answer.json()
            found += [item["metadata"]["name"] for item in page["items"]]
            assert len(page["items"]) <= (700 if limit else LIMITS.api_list_page_items)
            pages += 1
            token = page["metadata"].get("continue", "")
            if not token:
                break
        assert found == [f"page-{n:05}" for n in range(OBJECTS)]
        assert pages >= OBJECTS // (700 if limit else LIMITS.api_list_page_items)
    async with session.delete(f"{MAPS}?labelSelector=page%3Dyes") as answer:
        assert answer.status == 200


async def test_one_watch_too_many_is_told_to_come_back(session: aiohttp.ClientSession) -> None:
    open_watches = []
    try:
        refused: aiohttp.ClientResponse | None = None
        for _ in range(LIMITS.watch_streams + 1):
            answer = await session.get(f"{MAPS}?watch=1")
            open_watches.append(answer)
            if answer.status != 200:
                refused = answer
                break
        assert refused is not None and refused.status == 429
        assert refused.headers["Retry-After"] == str(LIMITS.watch_retry_after_s)
        status = await refused.json()
        assert (status["kind"], status["reason"]) == ("Status", "TooManyRequests")
    finally:
        for answer in open_watches:
            answer.close()
    for _ in range(200):
        async with session.get(f"{MAPS}?watch=1&timeoutSeconds=1") as answer:
            if answer.status == 200:
                return
        await asyncio.sleep(0.05)
    raise AssertionError("the places of closed watches were never free again")
