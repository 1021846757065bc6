"""gzip of large answers for clients that take it, as kube-apiserver does; small ones are not worth the time."""

import asyncio
import gzip

from kube32.api.http import Response
from kube32.contract import Limits, offers

_LEVEL = 1


async def compressed(response: Response, method: str, accepted: str, limits: Limits) -> Response:
    """The answer, compressed when it is a whole one of at least `api_compress_bytes`, to a GET whose
    Accept-Encoding takes gzip.
    """
    body = response.body
    if not isinstance(body, bytes) or len(body) < limits.api_compress_bytes or method != "GET":
        return response
    if "Content-Encoding" in response.headers or not offers(limits.profile, "compression"):
        return response
    headers = {**response.headers, "Vary": "Accept-Encoding"}
    if not _takes_gzip(accepted):
        return Response(response.status, body, headers, response.content_type)
    # zlib leaves the interpreter free meanwhile.
    small = await asyncio.to_thread(gzip.compress, body, _LEVEL, mtime=0)
    return Response(response.status, small, {**headers, "Content-Encoding": "gzip"}, response.content_type)


def _takes_gzip(accepted: str) -> bool:
    for row in accepted.lower().split(","):
        name, _, parameters = row.partition(";")
        if name.strip() == "gzip":
            key, _, value = parameters.strip().partition("=")
            return not (key.strip() == "q" and value.strip() in ("0", "0.0", "0.00", "0.000"))
    return False
