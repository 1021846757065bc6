"""SPDY/3.1 frames: what a client sends is read, what is no SPDY is refused without growing or looping."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube32.api.streams.spdy import (
    Data,
    Decoder,
    Encoder,
    Goodbye,
    Opened,
    Ping,
    Reset,
    SpdyError,
)
from kube32.api.streams.spdy_dictionary import DICTIONARY


def control(kind: int, payload: bytes, flags: int = 0, version: int = 3) -> bytes:
    return struct.pack(">HHI", 0x8000 | version, kind, flags << 24 | len(payload)) + payload


class Peer:
    """A client's compressor and its SYN_STREAM."""

    def __init__(self) -> None:
        self.deflate = zlib.compressobj(zdict=DICTIONARY)

    def block(self, headers: dict[str, str]) -> bytes:
        plain = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for text in (name.encode(), value.encode()):
                plain += struct.pack(">I", len(text)) + text
        return self.deflate.compress(plain) + self.deflate.flush(zlib.Z_SYNC_FLUSH)

    def open(self, stream: int, headers: dict[str, str], flags: int = 0) -> bytes:
        return control(1, struct.pack(">IIH", stream, 0, 0) + self.block(headers), flags)


def test_the_dictionary_is_that_of_spdy_3() -> None:
    assert len(DICTIONARY) == 1423
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2


@given(st.integers(1, 40))
def test_frames_are_read_however_they_are_cut(size: int) -> None:
    peer = Peer()
    sent = (
        peer.open(1, {"Streamtype": "error", "Port": "80", "Requestid": "0"}, flags=1)
        + control(4, b"\0\0\0\0")
        + peer.open(3, {"streamtype": "data", "port": "80", "requestid": "0"})
        + struct.pack(">II", 3, 5)
        + b"hello"
        + struct.pack(">II", 3, 0x01000000)
        + control(6, struct.pack(">I", 7))
        + control(9, struct.pack(">II", 3, 100))
        + control(3, struct.pack(">II", 3, 5))
        + control(7, struct.pack(">II", 0, 0))
    )
    decoder = Decoder()
    frames = [f for at in range(0, len(sent), size) for f in decoder.feed(sent[at : at + size])]
    assert frames == [
        Opened(1, {"streamtype": "error", "port": "80", "requestid": "0"}, True),
        Opened(3, {"streamtype": "data", "port": "80", "requestid": "0"}, False),
        Data(3, b"hello", False),
        Data(3, b"", True),
        Ping(7),
        Reset(3),
        Goodbye(),
    ]


def test_what_is_sent_can_be_read() -> None:
    encoder = Encoder()
    sent = encoder.reply(1) + encoder.reply(3) + encoder.data(3, b"x", fin=True) + encoder.ping(9)
    frames = list(Decoder().feed(sent))
    assert frames == [Data(3, b"x", True), Ping(9)]


def test_the_headers_of_a_reply_are_empty_and_compressed_with_the_dictionary() -> None:
    inflate = zlib.decompressobj(zdict=DICTIONARY)
    encoder = Encoder()
    for stream in (1, 3):
        reply = encoder.reply(stream)
        assert struct.unpack_from(">HH", reply) == (0x8003, 2)
        assert reply[8:12] == struct.pack(">I", stream)
        assert inflate.decompress(reply[12:]) == b"\0\0\0\0"


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"\0\0\0\x03\0\xff\xff\xff", "bytes, at most"),
        (control(1, b"\0" * 14, version=2), "version 2"),
        (control(77, b""), "type 77"),
        (control(6, b"\0"), "1 bytes"),
        (control(1, b"\0" * 10 + b"not zlib"), "decompressed"),
        (Peer().open(1, {"a": "x" * 100_000}), "more than"),
        (Peer().open(1, {f"h{i}": "" for i in range(100)}), "100 headers"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "bytes, at most"),
    ],
)
def test_what_is_no_spdy_is_refused(sent: bytes, says: str) -> None:
    with pytest.raises(SpdyError, match=says):
        list(Decoder().feed(sent))


def test_a_cut_header_block_is_refused() -> None:
    deflate = zlib.compressobj(zdict=DICTIONARY)
    block = deflate.compress(struct.pack(">II", 1, 400) + b"short") + deflate.flush(zlib.Z_SYNC_FLUSH)
    with pytest.raises(SpdyError, match="cut"):
        list(Decoder().feed(control(1, b"\0" * 10 + block)))


@given(st.binary(max_size=400))
def test_no_bytes_crash_the_decoder(data: bytes) -> None:
    try:
        list(Decoder().feed(data))
    except SpdyError:
        pass
