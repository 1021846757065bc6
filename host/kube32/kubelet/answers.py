"""Answers of the kubelet's endpoints: small JSON or text bodies, in the contract's words."""

import orjson
from aiohttp import web

STATUS_OK = 200
STATUS_BAD_REQUEST = 400
STATUS_FORBIDDEN = 403
STATUS_NOT_FOUND = 404
STATUS_NOT_ALLOWED = 405
STATUS_CONFLICT = 409
STATUS_TOO_LARGE = 413
STATUS_HEADERS_TOO_LARGE = 431
STATUS_UNAVAILABLE = 503
STATUS_GATEWAY_TIMEOUT = 504


class Refusal(Exception):
    """A request that is answered with an error: `reason` and `message` as JSON."""

    def __init__(self, status: int, reason: str, message: str, **fields: object) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, object] = {"reason": reason, "message": message, **fields}
        self.headers: dict[str, str] = {}

    def answer(self) -> web.Response:
        """The refusal as a response."""
        response = json_answer(self.body, self.status)
        response.headers.update(self.headers)
        return response


def json_answer(body: object, status: int = STATUS_OK) -> web.Response:
    """A JSON response."""
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def text_answer(message: str, status: int, headers: dict[str, str] | None = None) -> web.Response:
    """A line of text."""
    return web.Response(text=f"{message}\n", status=status, headers=headers)


def not_found(message: str) -> Refusal:
    """No such pod or container on this node."""
    return Refusal(STATUS_NOT_FOUND, "NotFound", message)


def bad_request(message: str) -> Refusal:
    """A parameter that cannot be taken."""
    return Refusal(STATUS_BAD_REQUEST, "BadRequest", message)
