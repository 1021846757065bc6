"""Secrets of type kubernetes.io/service-account-token: filled with a long-lived token of the ServiceAccount that they
name in an annotation, and gone with it, as Kubernetes' token controller does it.
"""

import base64
import logging
from typing import Any

from kube32.api.identity.accounts import Account, Accounts, Bound
from kube32.contract import Limits, resource_of
from kube32.store import Change, NotFound, Store, StoreError

_log = logging.getLogger(__name__)
_TYPE = "kubernetes.io/service-account-token"
_NAME, _UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
Object = dict[str, Any]


class AccountSecrets:
    """Keeps a store's token Secrets."""

    def __init__(self, store: Store, accounts: Accounts, ca_pem: str, limits: Limits) -> None:
        self._store = store
        self._accounts = accounts
        self._ca_pem = ca_pem
        self._seconds = limits.token_max_seconds
        self._secrets = resource_of("Secret")
        self._owners = resource_of("ServiceAccount")
        store.subscribe(self._secrets.prefix, self._secret_changed)
        store.subscribe(self._owners.prefix, self._account_changed)

    def _secret_changed(self, change: Change) -> None:
        if change.type != "DELETED" and _wants_token(change.entry.obj):
            self._fill(change.key, change.entry.obj)

    def _account_changed(self, change: Change) -> None:
        """A new account's Secrets are filled, those of one that is gone are deleted."""
        if change.type == "MODIFIED":
            return
        metadata = change.entry.obj["metadata"]
        for entry in self._store.scan(self._secrets.object_key(metadata["namespace"], ""))[0]:
            if _owner(entry.obj) != metadata["name"]:
                continue
            if change.type == "ADDED" and _wants_token(entry.obj):
                self._fill(entry.key, entry.obj)
            elif change.type == "DELETED" and _annotations(entry.obj).get(_UID) == metadata["uid"]:
                self._drop(entry.key, entry.revision)

    def _fill(self, key: str, secret: Object) -> None:
        metadata = secret["metadata"]
        namespace, name = metadata["namespace"], _owner(secret)
        owner = self._store.get(self._owners.object_key(namespace, name))
        uid = None if owner is None else owner.obj["metadata"]["uid"]
        if uid is None or _annotations(secret).get(_UID, uid) != uid:
            return
        bound = Bound("Secret", metadata["name"], metadata["uid"])
        token, _ = self._accounts.issue(Account(namespace, name, uid), (), self._seconds, bound)
        content = {"ca.crt": self._ca_pem, "namespace": namespace, "token": token}

        def fill(stored: Object) -> Object | None:
            if stored["metadata"]["uid"] != metadata["uid"] or not _wants_token(stored):
                return None
            stored["metadata"].setdefault("annotations", {})[_UID] = uid
            encoded = {k: base64.b64encode(v.encode()).decode() for k, v in content.items()}
            return {**stored, "data": {**(stored.get("data") or {}), **encoded}}

        try:
            self._store.update(key, fill)
        except NotFound:
            return
        except StoreError as error:
            _log.warning("no token can be put into Secret %s/%s: %s", namespace, metadata["name"], error)

    def _drop(self, key: str, revision: int) -> None:
        try:
            self._store.delete(key, expected_version=revision)
        except StoreError:
            return  # gone or written in the meantime: without its account its token is void anyway


def _annotations(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _owner(secret: Object) -> str:
    """The ServiceAccount of a token Secret; "" for any other Secret."""
    return _annotations(secret).get(_NAME, "") if secret.get("type") == _TYPE else ""


def _wants_token(secret: Object) -> bool:
    return bool(_owner(secret)) and not (secret.get("data") or {}).get("token")
