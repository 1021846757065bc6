"""Tokens of ServiceAccounts: signed with the cluster's key (pki/sa.pem), good as long as the account, and the object
they are bound to, is the one they were made for.
"""

import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kube32.api import pki
from kube32.api.http import UserInfo
from kube32.api.identity import jwt
from kube32.contract import NAMES, Limits, resource_of
from kube32.store import Store

KEY_FILE = "sa.pem"
_PRIVATE = "kubernetes.io"
_POD_NAME, _POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
BOUND_KINDS = {"Pod": "pod", "Secret": "secret", "Node": "node"}


@dataclass(frozen=True, slots=True)
class Bound:
    """The object that a token ends with; `kind` is one of BOUND_KINDS."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Account:
    """A ServiceAccount as it was when a token was asked for."""

    namespace: str
    name: str
    uid: str


class Accounts:
    """Makes and checks tokens of ServiceAccounts."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, limits: Limits) -> None:
        self._key = key
        self._public = key.public_key()
        self._limits = limits
        self._verified: OrderedDict[str, dict[str, Any]] = OrderedDict()

    @classmethod
    def open(cls, directory: Path, limits: Limits) -> "Accounts":
        """The key of a pki directory, made when there is none; PkiError, OSError."""
        path = directory / KEY_FILE
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            key = ec.generate_private_key(ec.SECP256R1())
            pki.write_private(path, pki.key_pem(key).encode())
            return cls(key, limits)
        except OSError as error:
            raise pki.PkiError(f"{path}: cannot be read: {error.strerror}") from error
        advice = "restore it from a copy, or delete it to end all tokens of ServiceAccounts"
        try:
            found = serialization.load_pem_private_key(data, password=None)
        except (ValueError, TypeError) as error:
            raise pki.PkiError(f"{path}: damaged, it does not hold a key; {advice}") from error
        if not isinstance(found, ec.EllipticCurvePrivateKey) or not isinstance(found.curve, ec.SECP256R1):
            raise pki.PkiError(f"{path}: its key is not ECDSA P-256; {advice}")
        return cls(found, limits)

    def key_set(self) -> dict[str, Any]:
        """What others need to check tokens."""
        return jwt.key_set(self._public)

    def issue(
        self, account: Account, audiences: Sequence[str], seconds: int, bound: Bound | None, node: str = ""
    ) -> tuple[str, int]:
        """A token and the Unix time of its end. `node` is that of the pod it is bound to.

        Without `audiences` it is for the API server.
        """
        now = int(time.time())
        inside: dict[str, Any] = {
            "namespace": account.namespace,
            "serviceaccount": {"name": account.name, "uid": account.uid},
        }
        if bound is not None:
            inside[BOUND_KINDS[bound.kind]] = {"name": bound.name, "uid": bound.uid}
        if node:
            inside["node"] = {"name": node}
        claims = {
            "aud": list(audiences) or [NAMES.token_issuer],
            "exp": now + seconds,
            "iat": now,
            "iss": NAMES.token_issuer,
            "jti": str(uuid.uuid4()),
            _PRIVATE: inside,
            "nbf": now,
            "sub": f"{NAMES.user_account_prefix}{account.namespace}:{account.name}",
        }
        return jwt.sign(self._key, claims), now + seconds

    def user(self, token: str, audiences: Sequence[str], store: Store) -> tuple[UserInfo, list[str]]:
        """Who has a token, and which of `audiences` it is for; BadToken says why it is not good.

        `nbf` is not looked at: a wall clock that was set back would shut everybody out.
        """
        claims = self._claims(token)
        expires = claims.get("exp")
        if claims.get("iss") != NAMES.token_issuer or not isinstance(expires, int):
            raise jwt.BadToken("it is not this cluster's")
        if time.time() >= expires:
            raise jwt.BadToken("service account token has expired")
        meant = claims.get("aud")
        common = [a for a in audiences if a in (meant if isinstance(meant, list) else [meant])]
        if not common:
            raise jwt.BadToken(
                f"token audiences {meant!r} is invalid for the target audiences {list(audiences)!r}"
            )
        inside = claims.get(_PRIVATE) or {}
        account = inside.get("serviceaccount") or {}
        namespace, name = str(inside.get("namespace", "")), str(account.get("name", ""))
        if _uid(store, "ServiceAccount", namespace, name) != account.get("uid"):
            raise jwt.BadToken(f"service account {namespace}/{name} has been deleted")
        for kind, claim in BOUND_KINDS.items():
            row = inside.get(claim)
            if row and row.get("uid") and _uid(store, kind, namespace, str(row.get("name"))) != row["uid"]:
                raise jwt.BadToken(f"{kind.lower()} {row.get('name')} has been deleted")
        return _user(namespace, name, str(account["uid"]), claims, inside), common

    def _claims(self, token: str) -> dict[str, Any]:
        """The claims of a token; a signature is checked once."""
        claims = self._verified.get(token)
        if claims is None:
            claims = jwt.verify(self._public, token)
            self._verified[token] = claims
            if len(self._verified) > self._limits.tokens_verified:
                self._verified.popitem(last=False)
        return claims


def groups_of(namespace: str) -> tuple[str, ...]:
    """The groups of a namespace's ServiceAccounts."""
    return (NAMES.group_accounts, f"{NAMES.group_accounts}:{namespace}", NAMES.group_authenticated)


def _user(namespace: str, name: str, uid: str, claims: dict[str, Any], inside: dict[str, Any]) -> UserInfo:
    extra = {_CREDENTIAL: [f"JTI={claims.get('jti')}"]}
    if pod := inside.get("pod"):
        extra[_POD_NAME], extra[_POD_UID] = [str(pod.get("name"))], [str(pod.get("uid"))]
    if node := inside.get("node"):
        extra[_NODE_NAME] = [str(node.get("name"))]
    return UserInfo(f"{NAMES.user_account_prefix}{namespace}:{name}", groups_of(namespace), uid, extra)


def _uid(store: Store, kind: str, namespace: str, name: str) -> str | None:
    entry = store.get(resource_of(kind).object_key(namespace, name))
    uid = None if entry is None else entry.obj["metadata"].get("uid")
    return uid if isinstance(uid, str) else None
