"""checkpoints/<name>/data: stored when right, refused with the cause when not, and the old data kept."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest

from kube32.api.checkpoint_data import handle
from kube32.api.http import BodyCut, Response
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS, Limits, resource_of
from kube32.formats.k32s import Snapshot, encode

DATA = "/apis/kube32.io/v1/namespaces/default/checkpoints/save-1/data"
KEY = resource_of("Checkpoint").object_key("default", "save-1")


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(snapshot_pool_bytes=400_000)


def snapshot(memory: bytes = b"m" * 65536, image: int = 1, time_ms: int = 1234) -> bytes:
    return encode(
        Snapshot(
            image_sha256=bytes([image]) * 32,
            memory_bytes=len(memory),
            memory_pages=max(1, len(memory) // 65536),
            pod_time_ms=time_ms,
            unix_time_ms=0,
            memory=memory,
            globals=[],
            tables=[],
            channels=[],
            events=[],
        )
    )


def checkpoint(world: Any, name: str = "save-1", phase: str = "Pending", **metadata: Any) -> None:
    world.put("Checkpoint", name, metadata=metadata, spec={"podName": "echo"}, status={"phase": phase})


async def put(world: Any, data: Any, name: str = "save-1", **parts: Any) -> Response:
    headers = {"Content-Type": "application/octet-stream", **parts.pop("headers", {})}
    answer: Response = await world.call(
        handle, "PUT", DATA.replace("save-1", name), body=data, headers=headers, **parts
    )
    return answer


async def refused(world: Any, data: Any, **parts: Any) -> ApiFailure:
    with pytest.raises(ApiFailure) as failure:
        await put(world, data, **parts)
    return failure.value


async def pieces(data: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def test_a_snapshot_is_stored_and_the_checkpoint_tells_its_facts(world: Any, read: Any) -> None:
    checkpoint(world)
    data = snapshot()
    answer = await put(world, data)
    assert isinstance(answer.body, bytes)
    body = orjson.loads(answer.body)
    trailer = hashlib.sha256(data[:-32]).hexdigest()
    assert (answer.status, body["kind"]) == (200, "Checkpoint")
    assert body["status"] == {
        "phase": "Pending",
        "sizeBytes": len(data),
        "snapshotSha256": trailer,
        "imageSha256": "01" * 32,
        "podTimeMs": 1234,
    }
    got = await world.call(handle, "GET", DATA)
    assert await read(got) == data
    assert got.content_type == "application/octet-stream"
    assert got.headers == {
        "Content-Length": str(len(data)),
        "X-Kube32-Image-Sha256": "01" * 32,
        "X-Kube32-Snapshot-Sha256": trailer,
        "X-Kube32-Pod-Time-Ms": "1234",
    }


async def test_a_snapshot_may_come_in_any_pieces(world: Any, read: Any) -> None:
    checkpoint(world)
    for size in (1, 67, 65536):
        whole = snapshot() if size > 1 else snapshot(b"x" * 512)
        await put(world, pieces(whole, size), content_length=len(whole))
        assert await read(await world.call(handle, "GET", DATA)) == whole


async def test_a_checkpoint_without_data_is_404(world: Any) -> None:
    with pytest.raises(ApiFailure) as failure:
        await world.call(handle, "GET", DATA)
    assert failure.value.message == 'checkpoints.kube32.io "save-1" not found'
    checkpoint(world)
    with pytest.raises(ApiFailure) as failure:
        await world.call(handle, "GET", DATA)
    assert (failure.value.code, failure.value.message) == (404, "checkpoint save-1 has no data")
    assert (await refused(world, snapshot(), name="other")).code == 404


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


BAD: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "magic": (lambda d: b"K32X" + d[4:], "the snapshot does not begin with K32S"),
    "version": (lambda d: d[:4] + b"\x02" + d[5:], "the snapshot has version 2, this node reads version 1"),
    "memory size": (lambda d: d[:40] + b"\xff" * 4 + d[44:], "is not possible"),
    "sections": (lambda d: d[:64] + b"\xff" * 4 + d[68:], "announces 4294967295 sections"),
    "memory": (lambda d: flipped(d, 1000), "trailer does not match"),
    "trailer": (lambda d: flipped(d, len(d) - 1), "trailer does not match"),
    "cut": (lambda d: d[:-1], "the stream ends before the trailer"),
    "empty": (lambda d: b"", "the stream ends before the trailer"),
    "more": (lambda d: d + b"x", "follow the snapshot's trailer"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_snapshot_that_is_wrong_is_422_and_the_old_data_stay(
    world: Any, read: Any, name: str
) -> None:
    change, cause = BAD[name]
    checkpoint(world)
    good = snapshot(time_ms=1)
    await put(world, good)
    before = world.object("Checkpoint", "save-1")
    failure = await refused(world, change(snapshot(time_ms=2)))
    assert failure.code == 422
    assert cause in failure.message
    assert await read(await world.call(handle, "GET", DATA)) == good
    assert world.object("Checkpoint", "save-1") == before
    assert world.pool.used_bytes == len(good)


async def test_a_length_is_required(world: Any) -> None:
    checkpoint(world)
    assert (await refused(world, pieces(snapshot()))).code == 411


async def test_another_content_type_is_415(world: Any) -> None:
    checkpoint(world)
    assert (await refused(world, snapshot(), headers={"Content-Type": "application/json"})).code == 415


@pytest.mark.parametrize("lie", [-100, 100])
async def test_a_length_that_lies_is_400(world: Any, lie: int) -> None:
    checkpoint(world)
    data = snapshot()
    assert (await refused(world, pieces(data), content_length=len(data) + lie)).code == 400
    assert world.pool.used_bytes == 0


async def test_a_body_that_is_cut_is_400(world: Any) -> None:
    checkpoint(world)

    async def cut() -> AsyncIterator[bytes]:
        yield snapshot()[:5000]
        raise BodyCut("the peer went away")

    failure = await refused(world, cut(), content_length=len(snapshot()))
    assert (failure.code, failure.message) == (400, "the request's body is incomplete: the peer went away")
    assert world.pool.used_bytes == 0


async def test_larger_than_the_whole_space_is_413_before_it_is_read(world: Any) -> None:
    checkpoint(world)

    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    for size in (400_001, 2**62):
        failure = await refused(world, never(), content_length=size)
        assert failure.code == 413
        assert failure.message == f"the snapshot has {size} bytes, the space for all snapshots is 400000"


@pytest.mark.parametrize("why", ["Saving", "Moving", "restore-from"])
async def test_data_in_use_are_never_dropped_for_others(world: Any, read: Any, why: str) -> None:
    checkpoint(world, "used", phase="Saved" if why == "restore-from" else why)
    if why == "restore-from":
        world.pod("echo", "a", annotations={"kube32.io/restore-from": "used"})
    used = snapshot(b"u" * 131072)
    await put(world, used, name="used")
    for name in ("b", "c", "d"):
        checkpoint(world, name, phase="Saved")
        await put(world, snapshot(b"x" * 131072), name=name)
    data = "/apis/kube32.io/v1/namespaces/default/checkpoints/{}/data"
    assert await read(await world.call(handle, "GET", data.format("used"))) == used
    with pytest.raises(ApiFailure):
        await world.call(handle, "GET", data.format("b"))
    checkpoint(world, "big")
    failure = await refused(world, snapshot(b"x" * 327680), name="big")
    assert failure.code == 413
    assert "in use by moves" in failure.message
    assert await read(await world.call(handle, "GET", data.format("d"))) is not None


async def test_a_restore_from_in_another_namespace_spares_nothing(world: Any) -> None:
    checkpoint(world, "used", phase="Saved")
    world.pod("echo", "a", namespace="other", annotations={"kube32.io/restore-from": "used"})
    await put(world, snapshot(b"u" * 131072), name="used")
    checkpoint(world, "big")
    await put(world, snapshot(b"x" * 327680), name="big")
    assert world.pool.get(resource_of("Checkpoint").object_key("default", "used")) is None


async def test_a_deleted_checkpoint_drops_its_data(world: Any) -> None:
    checkpoint(world)
    await put(world, snapshot())
    world.store.delete(KEY)
    assert world.pool.used_bytes == 0


async def test_a_checkpoint_deleted_while_its_data_come_is_404_and_leaves_nothing(world: Any) -> None:
    checkpoint(world)
    data = snapshot()

    async def body() -> AsyncIterator[bytes]:
        yield data[:100]
        world.store.delete(KEY)
        yield data[100:]

    assert (await refused(world, body(), content_length=len(data))).code == 404
    assert world.pool.used_bytes == 0


async def test_data_for_a_checkpoint_that_was_made_anew_meanwhile_are_409(world: Any) -> None:
    checkpoint(world)
    data = snapshot()

    async def body() -> AsyncIterator[bytes]:
        yield data[:100]
        world.store.delete(KEY)
        checkpoint(world, uid="another")
        yield data[100:]

    assert (await refused(world, body(), content_length=len(data))).code == 409
    assert world.pool.get(KEY) is None
    assert "sizeBytes" not in world.object("Checkpoint", "save-1")["status"]


async def test_a_status_written_meanwhile_is_not_lost(world: Any) -> None:
    checkpoint(world)
    data = snapshot()

    async def body() -> AsyncIterator[bytes]:
        yield data[:100]
        checkpoint(world, phase="Saving")
        yield data[100:]

    await put(world, body(), content_length=len(data))
    status = world.object("Checkpoint", "save-1")["status"]
    assert (status["phase"], status["sizeBytes"]) == ("Saving", len(data))


async def test_of_two_puts_at_once_the_last_to_finish_stays_whole(world: Any, read: Any) -> None:
    checkpoint(world)
    first, second = snapshot(b"1" * 65536), snapshot(b"2" * 65536)
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield first[:30000]
        await gate.wait()
        yield first[30000:]

    slow_put = asyncio.ensure_future(put(world, slow(), content_length=len(first)))
    await asyncio.sleep(0)
    await put(world, second)
    assert await read(await world.call(handle, "GET", DATA)) == second
    gate.set()
    await slow_put
    assert await read(await world.call(handle, "GET", DATA)) == first
    assert world.pool.used_bytes == len(first)


async def test_a_reader_gets_the_bytes_it_began_with(world: Any, read: Any) -> None:
    checkpoint(world)
    first = snapshot(b"1" * 131072)
    await put(world, first)
    answer = await world.call(handle, "GET", DATA)
    begun = bytes(await anext(answer.body))
    await put(world, snapshot(b"2" * 131072))
    world.store.delete(KEY)
    assert begun + await read(answer) == first


async def test_a_put_that_is_given_up_leaves_nothing(world: Any) -> None:
    checkpoint(world)
    data = snapshot()

    async def stuck() -> AsyncIterator[bytes]:
        yield data[:30000]
        await asyncio.Event().wait()

    task = asyncio.ensure_future(put(world, stuck(), content_length=len(data)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert world.pool.used_bytes == 30000
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.pool.used_bytes == 0
