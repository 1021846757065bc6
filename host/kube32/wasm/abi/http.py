"""Host functions of k32_handle: the request and the response. Outside of a request they give -2 and change
nothing.
"""

import re
from collections.abc import Callable

from kube32.contract import ABI, Limits
from kube32.wasm.abi.state import CallState, signed, utf8
from kube32.wasm.host import HttpCall
from kube32.wasm.memory import EFAULT, PodMemory

_ENOENT = ABI.errors["K32_ENOENT"]
_ENOMEM = ABI.errors["K32_ENOMEM"]
_EINVAL = ABI.errors["K32_EINVAL"]
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# They frame a body or belong to one connection: the node sets them.
_FRAMING = frozenset(
    b"connection content-length keep-alive proxy-connection te trailer transfer-encoding upgrade".split()
)
_REPEATED = "set-cookie"
_STATUSES = range(200, 600)


class HttpFunctions:
    """k32_req_* and k32_resp_*."""

    def __init__(self, state: CallState, memory: PodMemory, limits: Limits) -> None:
        self._state = state
        self._memory = memory
        self._limits = limits

    def functions(self) -> dict[str, Callable[..., int | None]]:
        """By ABI name."""
        return {
            "k32_req_method": self._method,
            "k32_req_path": self._path,
            "k32_req_query": self._query,
            "k32_req_header": self._header,
            "k32_req_body_len": self._body_length,
            "k32_req_body_read": self._body_read,
            "k32_resp_status": self._set_status,
            "k32_resp_header": self._set_header,
            "k32_resp_write": self._write,
        }

    def _method(self, buffer: int, capacity: int) -> int:
        request = self._state.request
        return self._copy_out(request.method if request else None, buffer, capacity)

    def _path(self, buffer: int, capacity: int) -> int:
        request = self._state.request
        return self._copy_out(request.path if request else None, buffer, capacity)

    def _query(self, buffer: int, capacity: int) -> int:
        request = self._state.request
        return self._copy_out(request.query if request else None, buffer, capacity)

    def _header(self, name: int, name_length: int, buffer: int, capacity: int) -> int:
        """Several headers of one name are joined as in RFC 9110, 5.3."""
        if not (self._memory.holds(name, name_length) and self._memory.holds(buffer, capacity)):
            return EFAULT
        request = self._state.request
        if request is None or name_length > self._limits.api_header_bytes:
            return _ENOENT
        wanted = self._memory.read(name, name_length).lower()
        found = [value for key, value in request.headers if key.lower().encode() == wanted]
        return self._copy_out(", ".join(found) if found else None, buffer, capacity)

    def _body_length(self) -> int:
        request = self._state.request
        return _ENOENT if request is None else len(request.body)

    def _body_read(self, offset: int, buffer: int, capacity: int) -> int:
        if not self._memory.holds(buffer, capacity):
            return EFAULT
        request = self._state.request
        if request is None:
            return _ENOENT
        if signed(offset) < 0:
            return _EINVAL
        data = request.body[offset : offset + capacity]
        self._memory.write(buffer, data)
        return len(data)

    def _set_status(self, code: int) -> None:
        """A code that ends no request (below 200, or 600 and more) is left out."""
        request = self._state.request
        if request is not None and code in _STATUSES:
            request.response_status = code

    def _set_header(self, name: int, name_length: int, value: int, value_length: int) -> int:
        """0. -22: no header name or value, or one that frames the body or the connection; -12: too many or
        too long.
        """
        if not (self._memory.holds(name, name_length) and self._memory.holds(value, value_length)):
            return EFAULT
        request = self._state.request
        if request is None:
            return _ENOENT
        if name_length + value_length > self._limits.pod_response_header_bytes:
            return _ENOMEM
        key, content = self._memory.read(name, name_length), self._memory.read(value, value_length)
        shown = utf8(content)
        if not _TOKEN.fullmatch(key) or key.lower() in _FRAMING or shown is None or _CONTROL.search(content):
            return _EINVAL
        return self._keep_header(request, key.decode("ascii"), shown)

    def _keep_header(self, request: HttpCall, key: str, value: str) -> int:
        lower = key.lower()
        headers = [(k, v) for k, v in request.response_headers if lower == _REPEATED or k.lower() != lower]
        headers.append((key, value))
        size = sum(len(k) + len(v.encode()) for k, v in headers)
        if len(headers) > self._limits.pod_response_headers or size > self._limits.pod_response_header_bytes:
            return _ENOMEM
        request.response_headers = headers
        return 0

    def _write(self, pointer: int, length: int) -> int:
        if not self._memory.holds(pointer, length):
            return EFAULT
        request = self._state.request
        if request is None:
            return _ENOENT
        if len(request.response_body) + length > self._limits.pod_response_body_bytes:
            return _ENOMEM
        request.response_body += self._memory.view(pointer, length)
        return length

    def _copy_out(self, value: str | None, buffer: int, capacity: int) -> int:
        if not self._memory.holds(buffer, capacity):
            return EFAULT
        if value is None:
            return _ENOENT
        # Bytes that were no UTF-8 came in as surrogates and leave as they were.
        return self._memory.copy_out(value.encode("utf-8", "surrogateescape"), buffer, capacity)
