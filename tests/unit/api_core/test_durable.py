"""The API over a journal: what is answered, and what is seen when the flash fails or is full."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api_core.conftest import Api, config_map, make_server

from kube32.contract import Limits, limits_for
from kube32.formats.k32l import Geometry
from kube32.store import Journal
from kube32.store.flash import FlashError
from kube32.store.flash_memory import MemoryFlash
from kube32.store.journal import open_log

MAPS = "/api/v1/namespaces/default/configmaps"


class Flash(MemoryFlash):
    """A flash whose syncs can be held up, and made to fail."""

    broken = False

    def sync(self) -> None:
        if self.broken:
            raise FlashError("journal.img: Input/output error")
        super().sync()


@pytest.fixture
def limits() -> Limits:
    return limits_for("sim").replace(journal_live_bytes=100_000, journal_update_reserve_bytes=10_000)


@pytest.fixture
def flash() -> Flash:
    return Flash(Geometry(256))


@pytest.fixture
async def api(pki_dir: Path, limits: Limits, flash: Flash) -> AsyncIterator[Api]:
    server = make_server(pki_dir, limits, Journal(open_log(flash, limits), limits))
    await server.start()
    yield Api(server)
    await server.close()
    await server.store.close()


async def test_a_write_that_fails_is_500_and_leaves_the_object_and_its_watchers_alone(
    api: Api, flash: Flash
) -> None:
    before = await api.create(MAPS, config_map("a", data={"v": "1"}))
    watch = await api.watch(f"{MAPS}?watch=1&resourceVersion={before['metadata']['resourceVersion']}")
    flash.broken = True
    answers = await asyncio.gather(
        api.send("PUT", f"{MAPS}/a", config_map("a", data={"v": "2"})),
        api.patch(f"{MAPS}/a", {"data": {"v": "3"}}),
        api.send("POST", MAPS, config_map("b")),
        api.send("DELETE", f"{MAPS}/a"),
    )
    for answer in answers:
        assert answer.status == 500
        assert "takes no more writes: journal.img: Input/output error" in answer.message
    flash.broken = False  # a disk that says so now is not believed
    assert (await api.send("POST", MAPS, config_map("c"))).status == 500
    assert (await api.get(f"{MAPS}/a")).json == before
    names = [item["metadata"]["name"] for item in (await api.get(MAPS)).json["items"]]
    assert "a" in names and not {"b", "c"} & set(names)
    ready = await api.get("/readyz")
    assert (ready.status, b"Input/output error" in ready.body) == (500, True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await watch.next()
    await watch.close()


async def test_a_full_store_is_500_storage_full(api: Api) -> None:
    answer = None
    for number in range(100):
        answer = await api.send("POST", MAPS, config_map(f"c{number}", data={"v": "x" * 5_000}))
        if answer.status != 201:
            break
    assert answer is not None
    assert (answer.status, answer.json["reason"]) == (500, "StorageFull")
    assert answer.message.startswith("the store is full: ")
    assert (await api.get(f"{MAPS}/c{number}")).status == 404
    dry = await api.send("POST", f"{MAPS}?dryRun=All", config_map("dry", data={"v": "x" * 5_000}))
    assert dry.status == 201
    assert (await api.send("DELETE", f"{MAPS}/c0")).status == 200
    assert (await api.send("POST", MAPS, config_map("again", data={"v": "x" * 5_000}))).status == 201


async def test_writers_that_race_for_one_object_each_get_a_revision_of_their_own(api: Api) -> None:
    await api.create(MAPS, config_map("a", data={}))

    async def patch(number: int) -> Any:
        answer = await api.patch(f"{MAPS}/a", {"data": {f"k{number}": "v"}})
        assert answer.status == 200
        return answer.json["metadata"]["resourceVersion"]

    versions = await asyncio.gather(*(patch(number) for number in range(20)))
    assert len(set(versions)) == 20
    assert len((await api.get(f"{MAPS}/a")).json["data"]) == 20
