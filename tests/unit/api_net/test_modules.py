"""modules/<name>/data: durable by digest, checked as it comes, kept as long as a pod needs it."""

import asyncio
import errno
import hashlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from kube32.api import modules
from kube32.api.http import BodyCut, Response
from kube32.api.modules import ModuleStore, handle
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS, Limits, resource_of

DATA = "/apis/kube32.io/v1/modules/counter/data"
KEY = resource_of("Module").object_key("", "counter")


@pytest.fixture
def limits() -> Limits:
    return LIMITS.replace(module_bytes=1_000_000)


def wasm(mark: bytes = b"", export: bytes = b"k32_handle") -> bytes:
    """A small request module; `mark` goes into a custom section, so that digests differ."""

    def section(number: int, payload: bytes) -> bytes:
        size = len(payload)
        length = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
        return bytes([number]) + length + payload

    exports = b"\x02\x06memory\x02\x00" + bytes([len(export)]) + export + b"\x00\x00"
    return (
        b"\0asm\x01\0\0\0"
        + section(1, b"\x01\x60\x00\x00")
        + section(3, b"\x01\x00")
        + section(5, b"\x01\x00\x01")
        + section(7, exports)
        + section(10, b"\x01\x02\x00\x0b")
        + section(0, b"\x01m" + mark)
    )


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def module(world: Any, name: str = "counter", **metadata: Any) -> None:
    world.put("Module", name, metadata=metadata, spec={})


async def put(world: Any, data: Any, name: str = "counter", **parts: Any) -> Response:
    answer: Response = await world.call(handle, "PUT", DATA.replace("counter", name), body=data, **parts)
    return answer


async def refused(world: Any, data: Any, **parts: Any) -> ApiFailure:
    with pytest.raises(ApiFailure) as failure:
        await put(world, data, **parts)
    return failure.value


async def get(world: Any, query: str = "", **parts: Any) -> Response:
    answer: Response = await world.call(handle, "GET", f"{DATA}{query}", **parts)
    return answer


async def get_refused(world: Any, query: str = "") -> ApiFailure:
    with pytest.raises(ApiFailure) as failure:
        await get(world, query)
    return failure.value


def files(world: Any) -> set[str]:
    return {path.name for path in (world.directory / "modules").iterdir()}


async def test_a_module_is_stored_by_its_digest_and_told_in_the_status(world: Any, read: Any) -> None:
    module(world)
    data = wasm()
    answer = await put(world, data, headers={"Content-Type": "application/wasm"})
    assert isinstance(answer.body, bytes)
    assert orjson.loads(answer.body)["status"] == {
        "sha256": digest(data),
        "sizeBytes": len(data),
        "podKind": "request",
        "exports": ["k32_handle"],
    }
    assert files(world) == {f"{digest(data)}.wasm"}
    assert world.modules.digest_of("counter") == digest(data)
    got = await get(world)
    assert await read(got) == data
    assert got.headers == {
        "X-Kube32-Image-Sha256": digest(data),
        "ETag": f'"{digest(data)}"',
        "Content-Length": str(len(data)),
    }


async def test_files_are_private(world: Any) -> None:
    module(world)
    await put(world, wasm())
    directory = world.directory / "modules"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


async def test_what_a_client_has_already_is_not_sent_again(world: Any, read: Any) -> None:
    module(world)
    await put(world, wasm())
    answer = await get(world, headers={"If-None-Match": f'"{digest(wasm())}"'})
    assert (answer.status, answer.body) == (304, b"")
    answer = await get(world, headers={"If-None-Match": f'"{digest(b"")}"'})
    assert (answer.status, await read(answer)) == (200, wasm())


async def test_a_module_without_data_or_a_name_without_a_module_is_404(world: Any) -> None:
    assert (await get_refused(world)).message == 'modules.kube32.io "counter" not found'
    assert (await refused(world, wasm())).code == 404
    module(world)
    assert world.modules.digest_of("counter") is None
    failure = await get_refused(world)
    assert (failure.code, failure.message) == (404, "module counter has no data")


@pytest.mark.parametrize("bad", ["x", "../../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "%00"])
async def test_a_digest_that_is_none_is_400(world: Any, bad: str) -> None:
    module(world)
    assert (await get_refused(world, f"?digest={bad}")).code == 400


async def test_a_digest_that_is_not_kept_is_404(world: Any) -> None:
    module(world)
    await put(world, wasm())
    assert (await get_refused(world, f"?digest={'0' * 64}")).code == 404


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "not a WebAssembly module"),
        (b"\x7fELF", "not a WebAssembly module"),
        (wasm()[:30], "ends too early"),
        (wasm(export=b"other_name"), "exports none of"),
    ],
)
async def test_what_is_no_module_is_422_and_the_old_data_stay(
    world: Any, read: Any, data: bytes, cause: str
) -> None:
    module(world)
    await put(world, wasm())
    failure = await refused(world, data)
    assert failure.code == 422
    assert failure.message.startswith("module refused: ")
    assert cause in failure.message
    assert await read(await get(world)) == wasm()
    assert files(world) == {f"{digest(wasm())}.wasm"}


async def test_too_large_is_413_before_it_is_read(world: Any) -> None:
    module(world)

    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    failure = await refused(world, never(), content_length=1_000_001)
    assert failure.code == 413
    assert failure.message == "module refused: 1000001 bytes, at most 1000000 are taken"
    assert (await refused(world, never(), content_length=2**63)).code == 413


async def test_a_length_is_required_and_must_be_true(world: Any) -> None:
    module(world)

    async def body() -> AsyncIterator[bytes]:
        yield wasm()

    assert (await refused(world, body())).code == 411
    assert (await refused(world, body(), content_length=len(wasm()) + 1)).code == 400
    assert (await refused(world, body(), content_length=len(wasm()) - 1)).code == 400
    assert files(world) == set()


async def test_another_content_type_is_415(world: Any) -> None:
    module(world)
    assert (await refused(world, wasm(), headers={"Content-Type": "text/plain"})).code == 415


async def test_a_body_that_is_cut_or_given_up_leaves_nothing(world: Any) -> None:
    module(world)

    async def cut() -> AsyncIterator[bytes]:
        yield wasm()[:50]
        raise BodyCut("the peer went away")

    assert (await refused(world, cut(), content_length=len(wasm()))).code == 400
    assert files(world) == set()
    begun = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield wasm()[:50]
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(put(world, stuck(), content_length=len(wasm())))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert files(world) == set()


async def test_only_the_newest_of_a_name_stays(world: Any, read: Any) -> None:
    module(world)
    await put(world, wasm(b"1"))
    await put(world, wasm(b"2"))
    assert files(world) == {f"{digest(wasm(b'2'))}.wasm"}
    assert await read(await get(world)) == wasm(b"2")


async def test_a_pod_that_names_an_older_digest_keeps_its_bytes(world: Any, read: Any) -> None:
    module(world)
    old, new = wasm(b"1"), wasm(b"2")
    await put(world, old)
    world.pod("echo", "a", annotations={"kube32.io/wasm-sha256": digest(old)})
    await put(world, new)
    assert await read(await get(world, f"?digest={digest(old)}")) == old
    assert await read(await get(world)) == new
    world.pod("echo", "b", annotations={"kube32.io/wasm-sha256": digest(old)})
    world.store.delete(KEY)
    assert await read(await get(world, f"?digest={digest(old)}")) == old
    assert files(world) == {f"{digest(old)}.wasm"}
    world.store.delete(resource_of("Pod").object_key("default", "echo"))
    assert files(world) == set()
    assert (await get_refused(world, f"?digest={digest(old)}")).code == 404


async def test_bytes_of_two_names_go_with_the_last(world: Any) -> None:
    for name in ("counter", "other"):
        module(world, name)
        await put(world, wasm(), name)
    world.store.delete(KEY)
    assert files(world) == {f"{digest(wasm())}.wasm"}
    world.store.delete(resource_of("Module").object_key("", "other"))
    assert files(world) == set()


async def test_the_same_bytes_again_change_nothing(world: Any) -> None:
    module(world)
    await put(world, wasm())
    revision = world.store.revision
    await put(world, wasm())
    assert world.store.revision == revision
    assert files(world) == {f"{digest(wasm())}.wasm"}


async def test_a_restart_finds_the_bytes_and_clears_what_was_half_received(world: Any, read: Any) -> None:
    module(world)
    await put(world, wasm())
    directory = world.directory / "modules"
    (directory / ".incoming-0011").write_bytes(b"half")
    (directory / f"{'0' * 64}.wasm").write_bytes(b"of a module that is gone")
    world.modules = ModuleStore(directory, world.store, world.limits)
    assert world.modules.digest_of("counter") == digest(wasm())
    assert await read(await get(world)) == wasm()
    assert ".incoming-0011" not in files(world)
    await put(world, wasm(b"2"))
    assert files(world) == {f"{digest(wasm(b'2'))}.wasm"}


async def test_a_module_deleted_while_its_data_come_is_404_and_leaves_nothing(world: Any) -> None:
    module(world)

    async def body() -> AsyncIterator[bytes]:
        yield wasm()[:20]
        world.store.delete(KEY)
        yield wasm()[20:]

    assert (await refused(world, body(), content_length=len(wasm()))).code == 404
    assert files(world) == set()


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 507), (errno.EROFS, 500), (errno.EACCES, 500)])
@pytest.mark.parametrize("where", ["write", "sync", "name"])
async def test_a_disk_that_fails_is_told_and_leaves_the_old_data(
    world: Any, read: Any, monkeypatch: pytest.MonkeyPatch, number: int, code: int, where: str
) -> None:
    module(world)
    await put(world, wasm(b"old"))

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if where == "write":
            patch.setattr(modules, "_append", fail)
        elif where == "sync":
            patch.setattr(os, "fsync", fail)
        else:
            patch.setattr(Path, "replace", fail)
        failure = await refused(world, wasm(b"new"))
    assert failure.code == code
    assert os.strerror(number) in failure.message
    assert "module counter" in failure.message
    assert await read(await get(world)) == wasm(b"old")
    assert files(world) == {f"{digest(wasm(b'old'))}.wasm"}


async def test_many_puts_at_once_leave_one_whole_module(world: Any, read: Any) -> None:
    module(world)
    versions = [wasm(bytes([n]) * 300_000) for n in range(6)]
    await asyncio.gather(*(put(world, data) for data in versions))
    newest = world.modules.digest_of("counter")
    assert newest in {digest(data) for data in versions}
    assert digest(await read(await get(world))) == newest
    assert files(world) == {f"{newest}.wasm"}


async def test_a_reader_gets_the_bytes_it_began_with(world: Any, read: Any) -> None:
    module(world)
    first = wasm(b"1" * 600_000)
    await put(world, first)
    answer = await get(world)
    assert not isinstance(answer.body, bytes)
    begun = bytes(await anext(answer.body))
    await put(world, wasm(b"2"))
    assert begun + await read(answer) == first
