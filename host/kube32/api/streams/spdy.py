"""SPDY/3.1 frames, as far as Kubernetes' streaming uses them: streams, data, resets, pings, goodbye.

Flow control is not part of it: the clients' library sends no window updates and ignores them.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from kube32.api.streams.spdy_dictionary import DICTIONARY

_VERSION = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _HEADERS, _WINDOW = 1, 2, 3, 4, 6, 7, 8, 9
_KNOWN = frozenset((_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _HEADERS, _WINDOW))
_FIN = 0x01
_HEAD = struct.Struct(">II")
_CONTROL = 0x80000000
_ID = 0x7FFFFFFF
RST_PROTOCOL_ERROR, RST_REFUSED, RST_CANCEL = 1, 3, 5
# Larger frames, header blocks and numbers of headers no client of Kubernetes sends.
_FRAME_BYTES = 1 << 20
_BLOCK_BYTES = 16384
_BLOCK_HEADERS = 64


class SpdyError(ValueError):
    """The peer does not speak SPDY/3.1; str() says what is wrong."""


@dataclass(frozen=True, slots=True)
class Opened:
    """SYN_STREAM: a new stream and its headers, names in lower case."""

    stream: int
    headers: dict[str, str]
    fin: bool


@dataclass(frozen=True, slots=True)
class Data:
    """DATA; `fin`: the peer sends no more on this stream."""

    stream: int
    data: bytes
    fin: bool


@dataclass(frozen=True, slots=True)
class Reset:
    """RST_STREAM."""

    stream: int


@dataclass(frozen=True, slots=True)
class Ping:
    """PING."""

    number: int


@dataclass(frozen=True, slots=True)
class Goodbye:
    """GOAWAY."""


Frame = Opened | Data | Reset | Ping | Goodbye


class Decoder:
    """Bytes of the peer to frames. Frames that change nothing here (settings, windows) are passed over."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with `data`; SpdyError."""
        self._rest += data
        while len(self._rest) >= _HEAD.size:
            first, second = _HEAD.unpack_from(self._rest)
            length = second & 0xFFFFFF
            if length > _FRAME_BYTES:
                raise SpdyError(f"a frame of {length} bytes, at most {_FRAME_BYTES} are taken")
            if len(self._rest) < _HEAD.size + length:
                return
            payload = bytes(self._rest[_HEAD.size : _HEAD.size + length])
            del self._rest[: _HEAD.size + length]
            frame = self._frame(first, second >> 24, payload)
            if frame is not None:
                yield frame

    def _frame(self, first: int, flags: int, payload: bytes) -> Frame | None:
        if not first & _CONTROL:
            return Data(first & _ID, payload, bool(flags & _FIN))
        version, kind = first >> 16 & 0x7FFF, first & 0xFFFF
        if version != _VERSION or kind not in _KNOWN:
            raise SpdyError(f"a control frame of version {version} and type {kind}")
        if kind == _GOAWAY:
            return Goodbye()
        if kind in (_SETTINGS, _WINDOW):
            return None
        if len(payload) < 4:
            raise SpdyError(f"a control frame of type {kind} with {len(payload)} bytes")
        number = int.from_bytes(payload[:4], "big")
        if kind == _PING:
            return Ping(number)
        if kind == _RST_STREAM:
            return Reset(number & _ID)
        # The compressor's state runs over every header block, also those that nobody asks for.
        headers = self._headers(payload[10 if kind == _SYN_STREAM else 4 :])
        return Opened(number & _ID, headers, bool(flags & _FIN)) if kind == _SYN_STREAM else None

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            plain = self._inflate.decompress(block, _BLOCK_BYTES)
        except zlib.error as error:
            raise SpdyError(f"a header block that cannot be decompressed: {error}") from None
        if self._inflate.unconsumed_tail:
            raise SpdyError(f"a header block of more than {_BLOCK_BYTES} bytes")
        try:
            return _pairs(plain)
        except (struct.error, UnicodeDecodeError):
            raise SpdyError("a header block that is cut or no text") from None


def _pairs(plain: bytes) -> dict[str, str]:
    (count,) = struct.unpack_from(">I", plain)
    if count > _BLOCK_HEADERS:
        raise SpdyError(f"a header block of {count} headers")
    at, found = 4, {}
    for _ in range(count):
        texts = []
        for _ in range(2):
            (length,) = struct.unpack_from(">I", plain, at)
            if at + 4 + length > len(plain):
                raise struct.error("cut")
            texts.append(plain[at + 4 : at + 4 + length].decode("utf-8"))
            at += 4 + length
        found[texts[0].lower()] = texts[1]
    return found


class Encoder:
    """Frames to bytes for the peer."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def reply(self, stream: int) -> bytes:
        """SYN_REPLY without headers: the stream is taken."""
        block = self._deflate.compress(b"\0\0\0\0") + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control(_SYN_REPLY, stream.to_bytes(4, "big") + block)

    @staticmethod
    def data(stream: int, data: bytes, *, fin: bool = False) -> bytes:
        """DATA."""
        return _HEAD.pack(stream, (_FIN if fin else 0) << 24 | len(data)) + data

    @staticmethod
    def reset(stream: int, status: int) -> bytes:
        """RST_STREAM."""
        return _control(_RST_STREAM, struct.pack(">II", stream, status))

    @staticmethod
    def ping(number: int) -> bytes:
        """PING, the answer to one."""
        return _control(_PING, number.to_bytes(4, "big"))

    @staticmethod
    def goodbye(last: int) -> bytes:
        """GOAWAY: no stream after `last` is taken."""
        return _control(_GOAWAY, struct.pack(">II", last, 0))


def _control(kind: int, payload: bytes) -> bytes:
    return _HEAD.pack(_CONTROL | _VERSION << 16 | kind, len(payload)) + payload
