"""HTTPS to an API server without any client library: requests, watches, bare sockets."""

import base64
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Api:
    """Where the API server is and who asks; `token` None asks without a credential."""

    host: str
    port: int
    context: ssl.SSLContext
    token: str | None

    @classmethod
    def of(cls, kubeconfig: Path) -> "Api":
        """The server and user of a kubeconfig that kube32-sim wrote."""
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        host, port = cluster["server"].removeprefix("https://").rsplit(":", 1)
        context = ssl.create_default_context(cadata=authority)
        return cls(host, int(port), context, config["users"][0]["user"]["token"])

    def with_token(self, token: str | None) -> "Api":
        """The same server, another user."""
        return Api(self.host, self.port, self.context, token)

    def headers(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        """The credential and `extra`."""
        found = {"Authorization": f"Bearer {self.token}"} if self.token is not None else {}
        return {**found, **(extra or {})}

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout_s: float = 20,
    ) -> Answer:
        """One request on a connection of its own; a body that is no bytes goes as JSON."""
        extra = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            extra.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPSConnection(
            self.host, self.port, context=self.context, timeout=timeout_s
        )
        try:
            connection.request(method, path, body=body, headers=self.headers(extra))
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    @contextmanager
    def watching(
        self, path: str, headers: dict[str, str] | None = None, timeout_s: float = 10
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of a watch as they come; a TimeoutError when none comes in time."""
        connection = http.client.HTTPSConnection(
            self.host, self.port, context=self.context, timeout=timeout_s
        )
        try:
            connection.request("GET", path, headers=self.headers(headers))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield (json.loads(line) for line in response if line.strip())
        finally:
            connection.close()

    def socket(self, timeout_s: float = 20) -> ssl.SSLSocket:
        """A TLS connection on which nothing was sent."""
        plain = socket.create_connection((self.host, self.port), timeout_s)
        return self.context.wrap_socket(plain, server_hostname=self.host)


def assert_status(answer: Answer, code: int, reason: str) -> dict[str, Any]:
    """The answer is a Kubernetes Status of this code and reason; gives it."""
    assert answer.status == code, (answer.status, answer.body[:300])
    status: dict[str, Any] = answer.json
    assert status["kind"] == "Status" and status["apiVersion"] == "v1" and status["metadata"] == {}
    assert status["status"] == "Failure" and status["code"] == code and status["reason"] == reason
    assert status["message"]
    return status
