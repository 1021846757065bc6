"""Snapshots put together by hand, lies included, with a trailer that is right unless it shall not be."""

import hashlib
import struct
from collections.abc import Callable

import pytest

IMAGE = bytes(range(32))
Forge = Callable[..., bytes]


def section(kind: int, content: bytes, length: int | None = None) -> bytes:
    """A section; `length` lies about the content when given."""
    return struct.pack("<HI", kind, len(content) if length is None else length) + content


def forge(
    *sections: bytes,
    memory: bytes = b"m" * 65536,
    magic: bytes = b"K32S",
    version: int = 1,
    flags: int = 0,
    image: bytes = IMAGE,
    memory_bytes: int | None = None,
    pages: int = 1,
    count: int | None = None,
    with_memory: bool = True,
) -> bytes:
    """A whole snapshot: MEMORY first unless left out, then `sections`, then a true SHA-256 over all of it."""
    held = len(memory) if memory_bytes is None else memory_bytes
    parts = [section(1, memory), *sections] if with_memory else list(sections)
    number = len(parts) if count is None else count
    header = struct.pack(
        "<4sHH32sIIQQI", magic, version, flags, image, held, pages, 7000, 1_700_000_000_000, number
    )
    body = header + b"".join(parts)
    return body + hashlib.sha256(body).digest()


@pytest.fixture(name="forge")
def forge_fixture() -> Forge:
    return forge


@pytest.fixture(name="section")
def section_fixture() -> Callable[..., bytes]:
    return section
