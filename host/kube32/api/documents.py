"""Documents that never change while the server runs: made once, kept as bytes, sent with an ETag."""

import hashlib
from dataclasses import dataclass

from kube32.api.http import Response
from kube32.api.status import dump


@dataclass(frozen=True, slots=True)
class Document:
    """A document's JSON and its ETag (SHA-256 in upper-case hex, as kube-apiserver writes hashes, without
    quotes).
    """

    body: bytes
    etag: str

    def response(
        self,
        if_none_match: str = "",
        *,
        content_type: str = "application/json",
        immutable: bool = False,
    ) -> Response:
        """200 with the document, or 304 when the client has it. `immutable`: its URL names its hash."""
        headers = {"ETag": f'"{self.etag}"', "Vary": "Accept"}
        headers["Cache-Control"] = "public, immutable, max-age=31536000" if immutable else "no-cache, private"
        if self._is_known(if_none_match):
            return Response(304, b"", headers, content_type)
        return Response(200, self.body, headers, content_type)

    def _is_known(self, if_none_match: str) -> bool:
        tags = (tag.strip().removeprefix("W/").strip('"') for tag in if_none_match.split(","))
        return any(tag in (self.etag, "*") for tag in tags)


def document(value: object) -> Document:
    """A value as a document."""
    body = dump(value)
    return Document(body, hashlib.sha256(body).hexdigest().upper())
