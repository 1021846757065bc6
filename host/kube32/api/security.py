"""Credentials of the cluster and who holds them (decisions, "Security"): tokens, certificates, TLS.

`Security` makes everything at first start under <data dir>/pki and finds it there again. Tokens of nodes and
users are kept as SHA-256 only. A node's or a user's certificate counts as long as it is the last one that was
issued under its name. Who shows no credential is system:anonymous, as in Kubernetes.
"""

import asyncio
import re
import secrets
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kube32.api import authorizer, pki
from kube32.api.http import Request, UserInfo
from kube32.api.identity import impersonation, jwt
from kube32.api.identity.account_secrets import AccountSecrets
from kube32.api.identity.accounts import Accounts
from kube32.api.identity.digests import ADVICE, digest_of, read_object
from kube32.api.identity.users import Users
from kube32.api.liveness import NodeLiveness
from kube32.api.rbac import escalation
from kube32.api.rbac.index import Decision
from kube32.api.rbac.policy import Rbac
from kube32.api.rbac.rules import Attributes
from kube32.api.routes import RequestInfo
from kube32.api.status import unauthorized
from kube32.contract import NAMES, Limits, resource_of
from kube32.store import Store

TOKENS_FILE = "tokens.json"
NODES_FILE = "nodes.json"
CLIENT_FILE = "apiserver-kubelet-client.pem"
ANONYMOUS = UserInfo(NAMES.user_anonymous, (NAMES.group_unauthenticated,))
_ALWAYS = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class NodeCredentials:
    """All that a kubelet needs: client and serving certificate with keys, the CA (all PEM), its token."""

    name: str
    cert_pem: str
    key_pem: str
    serving_cert_pem: str
    serving_key_pem: str
    ca_pem: str
    token: str


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What is kept of a node that joined: its token's digest and its certificate's serial, both in hex."""

    token_sha256: str
    serial: str


@dataclass(frozen=True, slots=True)
class IssuedNode:
    """What a join gives: certificates as PEM and the node's token."""

    certificate: str
    serving_certificate: str
    token: str


class TooManyNodes(Exception):
    """As many nodes joined as `join_nodes` allows."""


class Security:
    """Authentication and authorization. `bind` gives it the store: until then nodes may touch no object."""

    def __init__(self, directory: Path, limits: Limits, authority: pki.Authority) -> None:
        """PkiError, OSError: a file of `directory` is damaged or cannot be written."""
        self._directory = directory
        self._limits = limits
        self._authority = authority
        self._store: Store | None = None
        self._users: dict[bytes, UserInfo] = {}
        self._nodes: dict[str, NodeRecord] = {}
        self._local: dict[str, NodeRecord] = {}
        self._liveness: NodeLiveness | None = None
        self._rbac: Rbac | None = None
        self.users = Users(directory, authority, limits)
        self.accounts = Accounts.open(directory, limits)
        self.joining = asyncio.Lock()
        self.ca_pem = authority.cert_pem
        self.admin_token = self.join_token = self.controller_token = ""

    @classmethod
    def create(cls, data_dir: Path, limits: Limits, *, advertise: list[str]) -> "Security":
        """Opens <data_dir>/pki, making what is missing; `advertise` are more names of this server.

        PkiError when a file there is damaged, OSError when it cannot be written.
        """
        directory = data_dir / "pki"
        pki.private_directory(directory)
        security = cls(directory, limits, pki.Authority.open(directory, limits))
        host = socket.gethostname()
        names = [*_ALWAYS, *([host] if host.isascii() else []), *advertise]
        security._authority.server_pair(directory, names)
        pki.write_pair(directory / CLIENT_FILE, security._authority.make(NAMES.user_apiserver))
        security._load_tokens()
        security._load_nodes()
        return security

    def bind(self, store: Store) -> None:
        """Gives the store to look pods and Leases up in. A second time does nothing."""
        if self._store is None:
            self._store = store
            self._liveness = NodeLiveness(store, self._limits)
            self._rbac = Rbac(store, self._limits)
            if self._limits.profile in resource_of("ServiceAccount").subresources["token"].profiles:
                AccountSecrets(store, self.accounts, self.ca_pem, self._limits)

    def bootstrap(self) -> None:
        """Makes the roles and bindings that every cluster has, where they are missing."""
        self.rbac.bootstrap()

    @property
    def rbac(self) -> Rbac:
        """The roles and bindings of the store that `bind` gave."""
        assert self._rbac is not None, "Security has no store yet"
        return self._rbac

    # --- who asks ---

    def authenticate(self, request: Request) -> UserInfo:
        """Who asks: of a client certificate or a bearer token, whom it impersonates, or system:anonymous.

        Raises ApiFailure 401 for a credential that is not (or no longer) valid, 400 and 403 for an
        impersonation that is malformed or not allowed.
        """
        headers = request.headers
        if request.peer_certificate:
            user = self._certificate_user(request.peer_certificate)
        elif (header := headers.get("Authorization")) is not None:
            scheme, _, token = header.partition(" ")
            found = self._token_user(token.strip()) if scheme.lower() == "bearer" else None
            if found is None:
                raise unauthorized()
            user = found
        else:
            user = ANONYMOUS
        if impersonation.asked_for(headers):
            return impersonation.apply(request, user, self.decide, self._limits)
        return user

    def _token_user(self, token: str) -> UserInfo | None:
        digest = digest_of(token)
        user = self._users.get(digest) or self.users.by_token(digest)
        if user is None and jwt.looks_like(token):
            try:
                user, _ = self.review_token(token, [NAMES.token_issuer])
            except jwt.BadToken:
                return None
        return user

    def review_token(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]]:
        """Who has a token and for which of `audiences` it is; jwt.BadToken says why it is not good."""
        digest = digest_of(token)
        user = self._users.get(digest) or self.users.by_token(digest)
        if user is not None:
            if common := [a for a in audiences if a == NAMES.token_issuer]:
                return user, common
            raise jwt.BadToken("the token is for the API server alone")
        if self._store is None or len(token) > self._limits.token_bytes:
            raise jwt.BadToken("it is not this cluster's")
        return self.accounts.user(token, audiences, self._store)

    def authorize(self, user: UserInfo, info: RequestInfo, request: Request) -> None:
        """Raises ApiFailure 403 unless `user` may make the request."""
        authorizer.authorize(user, info, request, self._store, self._rbac)

    def authorize_create(self, user: UserInfo, info: RequestInfo) -> None:
        """Raises ApiFailure 403 unless `user` may create what a patch (server-side apply) or an update of
        something that is not there would make: that needs the verb `create` too.
        """
        self.authorize(user, replace(info, verb="create"), Request("POST", "/"))

    def decide(self, user: UserInfo, wanted: Attributes, info: RequestInfo | None = None) -> Decision:
        """Whether `user` may do something that is no request (yet), and why (not).

        `info` says the same for the Node authorizer; without it a node has what roles give it.
        """
        groups = user.groups
        if NAMES.group_masters in groups or NAMES.group_controllers in groups:
            return Decision(True)
        if info is not None:
            request = Request("GET", "/")
            return authorizer.decide(user, wanted, info, request, self._store, self._rbac)
        return self.rbac.decide(user, wanted)

    def admit(
        self, user: UserInfo, info: RequestInfo, old: dict[str, Any] | None, new: dict[str, Any] | None
    ) -> None:
        """Raises ApiFailure 403 when somebody would write what is not its own to write, or give away rights
        that it does not hold; see authorizer.admit and rbac.escalation.
        """
        groups = user.groups
        if NAMES.group_masters in groups or NAMES.group_controllers in groups:
            return
        authorizer.admit(user, info, old, new)
        if self._rbac is not None and escalation.concerns(info):
            escalation.admit(self._rbac, user, info, old, new)

    # --- nodes ---

    def is_local(self, node: str) -> bool:
        """Whether the control plane itself runs the node of this name."""
        return node in self._local

    def has_joined(self, node: str) -> bool:
        """Whether a credential was given out under this name."""
        return node in self._nodes

    def is_alive(self, node: str) -> bool:
        """Whether somebody holds this name: the control plane's own node, or one that renews its Lease."""
        if node in self._local:
            return True
        return self._liveness is not None and self._liveness.alive(node, known=node in self._nodes)

    def hold(self, node: str) -> None:
        """Counts a name as alive from now, until its node had the time to renew its first Lease."""
        if self._liveness is not None:
            self._liveness.saw(node)

    def issue_node(
        self, name: str, request_pem: str, serving_request_pem: str, addresses: list[str], token: str = ""
    ) -> IssuedNode:
        """Signs a node's requests; its older certificate ends here, and its older token unless it is `token`.

        Raises RequestRefused, TooManyNodes, OSError; then nothing has changed. Writes a file: not for the
        event loop.
        """
        certificate = self._authority.sign_client(request_pem, name)
        serving = self._authority.sign_serving(serving_request_pem, name, addresses)
        token = token or self._new_token()
        old = self._nodes.get(name)
        if old is None and len(self._nodes) >= self._limits.join_nodes:
            raise TooManyNodes
        record = NodeRecord(digest_of(token).hex(), _serial(certificate))
        self._write_nodes({**self._nodes, name: record})
        if old is not None:
            self._users.pop(bytes.fromhex(old.token_sha256), None)
        self._nodes[name] = record
        self._users[digest_of(token)] = _node_user(name)
        return IssuedNode(_pem(certificate), _pem(serving), token)

    def forget_nodes(self, names: list[str]) -> None:
        """Ends the credentials of nodes. Writes a file: not for the event loop."""
        left = {name: record for name, record in self._nodes.items() if name not in names}
        self._write_nodes(left)
        for name in names:
            record = self._nodes.pop(name, None)
            if record is not None:
                self._users.pop(bytes.fromhex(record.token_sha256), None)

    def joined_nodes(self) -> list[str]:
        """The names that credentials were given out under."""
        return list(self._nodes)

    def local_node_credentials(self, name: str, addresses: list[str]) -> NodeCredentials:
        """Credentials of the control plane's own node. They live as long as this process."""
        user = f"{NAMES.user_node_prefix}{name}"
        client = self._authority.make(user, (NAMES.group_nodes,))
        names = [*addresses, pki.node_server_name(name)]
        serving = self._authority.make(user, (NAMES.group_nodes,), names=names, server=True)
        token = self._new_token()
        self._local[name] = NodeRecord(digest_of(token).hex(), _serial(client.cert))
        self._users[digest_of(token)] = _node_user(name)
        return NodeCredentials(
            name, client.cert_pem, client.key_pem, serving.cert_pem, serving.key_pem, self.ca_pem, token
        )

    # --- TLS ---

    def server_ssl_context(self) -> ssl.SSLContext:
        """TLS of the API server: a client may show a certificate of this cluster's CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._directory / pki.SERVER_FILE)
        context.load_verify_locations(cadata=self.ca_pem)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context

    def kubelet_client_ssl_context(self) -> ssl.SSLContext:
        """TLS of the API server towards kubelets."""
        return pki.client_context(self.ca_pem, self._directory / CLIENT_FILE)

    # --- files ---

    def _new_token(self) -> str:
        return secrets.token_urlsafe(self._limits.join_token_bytes)

    def _load_tokens(self) -> None:
        path = self._directory / TOKENS_FILE
        tokens = read_object(path)
        if tokens is None:
            tokens = {name: self._new_token() for name in ("admin", "join", "controllers")}
            pki.write_private(path, orjson.dumps(tokens, option=orjson.OPT_INDENT_2))
        for name in ("admin", "join", "controllers"):
            token = tokens.get(name)
            if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]{16,}", token):
                raise pki.PkiError(f"{path}: damaged, it has no usable token {name!r}; {ADVICE}")
        self.admin_token, self.join_token, self.controller_token = (
            tokens[name] for name in ("admin", "join", "controllers")
        )
        everyone = NAMES.group_authenticated
        for token, user, groups in (
            (self.admin_token, NAMES.user_admin, (NAMES.group_masters, everyone)),
            (self.join_token, NAMES.user_join, (everyone,)),
            (self.controller_token, NAMES.user_controllers, (NAMES.group_controllers, everyone)),
        ):
            self._users[digest_of(token)] = UserInfo(user, groups)

    def _load_nodes(self) -> None:
        path = self._directory / NODES_FILE
        for name, row in (read_object(path) or {}).items():
            try:
                record = NodeRecord(row["token"], row["serial"])
                digest = bytes.fromhex(record.token_sha256)
            except (TypeError, KeyError, ValueError) as error:
                raise pki.PkiError(f"{path}: damaged at node {name!r}; {ADVICE}") from error
            self._nodes[name] = record
            self._users[digest] = _node_user(name)

    def _write_nodes(self, nodes: dict[str, NodeRecord]) -> None:
        rows = {name: {"token": r.token_sha256, "serial": r.serial} for name, r in nodes.items()}
        pki.write_private(self._directory / NODES_FILE, orjson.dumps(rows, option=orjson.OPT_INDENT_2))

    def _certificate_user(self, certificate: dict[str, Any]) -> UserInfo:
        """The user of a certificate that TLS has verified."""
        attributes = [pair for rdn in certificate.get("subject", ()) for pair in rdn]
        names = [value for key, value in attributes if key == "commonName"]
        groups = tuple(value for key, value in attributes if key == "organizationName")
        if len(names) != 1:
            raise unauthorized()
        user = UserInfo(names[0], (*groups, NAMES.group_authenticated))
        serial = str(certificate.get("serialNumber", "")).lower().lstrip("0")
        node = authorizer.node_of(user)
        if node is None:
            counts = self.users.accepts(user.name, serial)
        else:
            record = self._local.get(node) or self._nodes.get(node)
            counts = record is not None and record.serial == serial
        if not counts:
            raise unauthorized()
        return user


def _serial(certificate: x509.Certificate) -> str:
    return f"{certificate.serial_number:x}"


def _node_user(name: str) -> UserInfo:
    return UserInfo(f"{NAMES.user_node_prefix}{name}", (NAMES.group_nodes, NAMES.group_authenticated))


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
