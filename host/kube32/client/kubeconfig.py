"""Kubeconfig files: found, merged and read as kubectl does, and written for the users of a cluster."""

import base64
import binascii
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

Obj = dict[str, Any]
_DEFAULT = Path("~/.kube/config")


class KubeconfigError(Exception):
    """No cluster can be read from the kubeconfig; str() is one line that names the file and what to do."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How to reach a cluster: what HttpTransport takes, and the namespace that the context names or ""."""

    server: str
    ssl_context: ssl.SSLContext | None
    token: str | None
    namespace: str
    context: str = ""
    user: str = ""
    server_hostname: str | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named cluster, context or user, and the file it stands in, where relative paths begin."""

    name: str
    kind: str
    data: Obj
    file: Path

    def text(self, field: str) -> str:
        value = self.data.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise KubeconfigError(
                f"{self.file}: {field} of {self.kind} {self.name!r} is not a string; correct it"
            )
        return value

    def content(self, field: str) -> bytes | None:
        """What `<field>-data` holds in base64, else the file named by `<field>`; None without both."""
        if encoded := self.text(f"{field}-data"):
            try:
                return base64.b64decode(encoded, validate=True)
            except binascii.Error:
                where = f"{field}-data of {self.kind} {self.name!r}"
                raise KubeconfigError(f"{self.file}: {where} is not base64; write the file anew") from None
        return self.file_content(field)

    def file_content(self, field: str) -> bytes | None:
        """What the file named by `field` holds."""
        if not (named := self.text(field)):
            return None
        path = self.file.parent / named
        try:
            return path.read_bytes()
        except OSError as error:
            where = f"{field} of {self.kind} {self.name!r}"
            raise KubeconfigError(
                f"{self.file}: {where}: {path}: {error.strerror}; correct the path"
            ) from None


class _Merged:
    """Several files as one: for each name, and for current-context, the first file that has it counts."""

    def __init__(self) -> None:
        self.current = ""
        self.entries: dict[tuple[str, str], _Entry] = {}
        self.files: list[Path] = []

    def add(self, path: Path) -> None:
        content = _read(path)
        self.files.append(path)
        self.current = self.current or str(content.get("current-context") or "")
        for kind in ("cluster", "context", "user"):
            rows = content.get(f"{kind}s") or []
            if not isinstance(rows, list):
                raise KubeconfigError(f"{path}: {kind}s is not a list; correct it")
            for row in rows:
                if not isinstance(row, dict) or not isinstance(row.get("name"), str):
                    raise KubeconfigError(f"{path}: an entry of {kind}s has no name; correct it")
                data = row.get(kind) or {}
                if not isinstance(data, dict):
                    raise KubeconfigError(f"{path}: {kind} {row['name']!r} is not a mapping; correct it")
                self.entries.setdefault((kind, row["name"]), _Entry(row["name"], kind, data, path))

    @property
    def where(self) -> str:
        return ":".join(str(f) for f in self.files)

    def find(self, kind: str, name: str, needed_by: str) -> _Entry:
        entry = self.entries.get((kind, name))
        if entry is None:
            known = ", ".join(sorted(n for k, n in self.entries if k == kind)) or "none"
            raise KubeconfigError(f"{self.where}: no {kind} {name!r}{needed_by}; it has: {known}")
        return entry


def _read(path: Path) -> Obj:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KubeconfigError(
            f"{path}: {error.strerror}; name another file with --kubeconfig or KUBECONFIG"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise KubeconfigError(f"{path}: not YAML{line}; correct it or name another file") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise KubeconfigError(f"{path}: not a kubeconfig; name another file with --kubeconfig or KUBECONFIG")
    return content


def _merged(path: Path | None) -> _Merged:
    merged = _Merged()
    if path is not None:
        merged.add(path)
        return merged
    listed = [Path(p) for p in os.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    wanted = listed or [_DEFAULT.expanduser()]
    for file in wanted:
        if file.exists():
            merged.add(file)
    if not merged.files:
        named = ":".join(str(f) for f in wanted)
        raise KubeconfigError(
            f"{named}: no such file; set KUBECONFIG to the kubeconfig that kube32-sim wrote"
        )
    return merged


def load_kubeconfig(path: Path | str | None = None, *, context: str | None = None) -> ClusterAccess:
    """The cluster of a kubeconfig: `path`, else the files of KUBECONFIG merged, else ~/.kube/config.

    `context` overrides current-context. KubeconfigError says what is wrong, where, and what to do.
    """
    merged = _merged(Path(path) if path is not None else None)
    name = context or merged.current
    if not name:
        raise KubeconfigError(
            f"{merged.where}: no current-context; set one with kubectl config use-context or --context"
        )
    chosen = merged.find("context", name, "")
    needed_by = f", which context {name!r} names"
    cluster = merged.find("cluster", chosen.text("cluster"), needed_by)
    user_name = chosen.text("user")
    user = merged.find("user", user_name, needed_by) if user_name else _Entry("", "user", {}, cluster.file)
    server = _server(cluster)
    return ClusterAccess(
        server=server,
        ssl_context=_ssl_context(cluster, user) if server.startswith("https:") else None,
        token=_token(user),
        namespace=chosen.text("namespace"),
        context=name,
        user=user_name,
        server_hostname=cluster.text("tls-server-name") or None,
    )


def _server(cluster: _Entry) -> str:
    server = cluster.text("server")
    try:
        parts = urlsplit(server)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise KubeconfigError(
            f"{cluster.file}: server {server!r} of cluster {cluster.name!r} is not a URL such as https://127.0.0.1:6443"
        )
    return server.rstrip("/")


def _token(user: _Entry) -> str | None:
    for field in ("exec", "auth-provider", "username"):
        if user.data.get(field):
            raise KubeconfigError(
                f"{user.file}: user {user.name!r} has {field!r}, which is not offered; "
                "use a token or a client certificate"
            )
    token = user.text("token")
    if not token:
        content = user.file_content("tokenFile")
        token = content.decode("utf-8", "replace").strip() if content is not None else ""
    if not token.isprintable() or not token.isascii():
        raise KubeconfigError(
            f"{user.file}: the token of user {user.name!r} is not one line of text; write it anew"
        )
    return token or None


def _ssl_context(cluster: _Entry, user: _Entry) -> ssl.SSLContext:
    authority = cluster.content("certificate-authority")
    try:
        context = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
    except (ssl.SSLError, ValueError):
        raise KubeconfigError(
            f"{cluster.file}: the certificate-authority of cluster {cluster.name!r} is not PEM; write it anew"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cluster.data.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if certificate is None and key is None:
        return context
    if certificate is None or key is None:
        missing = "client-certificate" if certificate is None else "client-key"
        raise KubeconfigError(f"{user.file}: user {user.name!r} has no {missing}; add it")
    try:
        _load_pair(context, certificate, key)
    except (ssl.SSLError, ValueError):
        raise KubeconfigError(
            f"{user.file}: client-certificate and client-key of user {user.name!r} are no pair in PEM; "
            "write them anew"
        ) from None
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # ssl reads a key from a file only; this one is readable by its owner alone and gone at once.
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(certificate.rstrip() + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name, password="")


def render_kubeconfig(
    server: str,
    ca_pem: str | bytes,
    user: str,
    token: str,
    context: str,
    *,
    certificate_pem: str = "",
    key_pem: str = "",
    namespace: str = "",
) -> str:
    """A kubeconfig with one cluster, one context and one user, as YAML.

    The user has a bearer token, or (token "") a client certificate with its key.
    """
    authority = ca_pem.encode() if isinstance(ca_pem, str) else ca_pem
    chosen = {"cluster": context, "user": user, **({"namespace": namespace} if namespace else {})}
    credential = (
        {"token": token}
        if token
        else {"client-certificate-data": _encoded(certificate_pem), "client-key-data": _encoded(key_pem)}
    )
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [
            {
                "name": context,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(authority).decode("ascii"),
                },
            }
        ],
        "contexts": [{"name": context, "context": chosen}],
        "users": [{"name": user, "user": credential}],
    }
    return yaml.safe_dump(config, sort_keys=False)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
