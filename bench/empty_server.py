"""The other side of the comparison: aiohttp's plain web.Application with one route and nothing behind it.

`python -m bench.empty_server PORT PEM SIZE`: HTTPS with the key and certificate in PEM; each GET is answered
with the same SIZE bytes.
"""

import ssl
import sys

import uvloop
from aiohttp import web


def main(port: int, pem: str, size: int) -> None:
    """Serves until a signal."""
    body = b"x" * size

    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    application = web.Application()
    application.router.add_get("/", handle)
    uvloop.install()
    web.run_app(
        application, host="127.0.0.1", port=port, ssl_context=context, access_log=None, print=lambda *_: None
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
