"""Large answers are compressed for clients that take gzip."""

import gzip

import pytest

from kube32.api.compression import compressed
from kube32.api.http import Response
from kube32.contract import LIMITS, limits_for

LARGE = b'{"items":[' + b'"x",' * LIMITS.api_compress_bytes + b'"x"]}'


async def test_a_large_answer_to_a_get_is_compressed() -> None:
    answer = await compressed(Response(200, LARGE), "GET", "deflate, gzip;q=0.8", LIMITS)
    assert answer.headers["Content-Encoding"] == "gzip"
    assert isinstance(answer.body, bytes) and gzip.decompress(answer.body) == LARGE
    assert len(answer.body) < len(LARGE) // 10


@pytest.mark.parametrize(
    ("method", "accepted", "body", "profile"),
    [
        ("GET", "", LARGE, "sim"),
        ("GET", "gzip;q=0", LARGE, "sim"),
        ("GET", "br", LARGE, "sim"),
        ("POST", "gzip", LARGE, "sim"),
        ("GET", "gzip", b"{}", "sim"),
        ("GET", "gzip", LARGE, "board"),
    ],
)
async def test_other_answers_stay_as_they_are(method: str, accepted: str, body: bytes, profile: str) -> None:
    answer = await compressed(Response(200, body), method, accepted, limits_for(profile))
    assert answer.body == body
    assert "Content-Encoding" not in answer.headers
