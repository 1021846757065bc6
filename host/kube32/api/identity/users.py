"""The users whose credentials this cluster gave out: a certificate's serial or a token's digest for each name, kept
in pki/users.json.

A certificate of a user counts as long as it is the last one that was issued under its name; names that were
removed stay noted, so that their certificates are refused. Certificates that the CA's owner signed by hand for
other names are good, as in Kubernetes.
"""

import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from cryptography.hazmat.primitives.serialization import Encoding

from kube32.api import pki
from kube32.api.http import UserInfo
from kube32.api.identity.digests import digest_of, read_object
from kube32.contract import NAMES, Limits

USERS_FILE = "users.json"


@dataclass(frozen=True, slots=True)
class UserRecord:
    """What is kept of a user. Serial and digest are hex; one of them is "". `created` is Unix time."""

    groups: tuple[str, ...]
    created: int
    serial: str = ""
    token_sha256: str = ""


@dataclass(frozen=True, slots=True)
class IssuedUser:
    """A new credential: a certificate as PEM or a token, the other one "". `replaced`: an older one ended."""

    certificate: str
    token: str
    created: int
    replaced: bool


class TooManyUsers(Exception):
    """As many users have credentials as `users` allows."""


class Users:
    """All users, by name."""

    def __init__(self, directory: Path, authority: pki.Authority, limits: Limits) -> None:
        self._path = directory / USERS_FILE
        self._authority = authority
        self._limits = limits
        self._records: dict[str, UserRecord] = {}
        self._removed: set[str] = set()
        self._tokens: dict[bytes, UserInfo] = {}
        self._load()

    @property
    def records(self) -> dict[str, UserRecord]:
        """What is kept, by name. Whoever gets it does not change it."""
        return self._records

    def by_token(self, digest: bytes) -> UserInfo | None:
        """The user of a token's digest."""
        return self._tokens.get(digest)

    def accepts(self, name: str, serial: str) -> bool:
        """Whether a certificate of a user counts (still)."""
        record = self._records.get(name)
        if record is not None:
            return record.serial == serial
        return name not in self._removed

    def issue(self, name: str, groups: tuple[str, ...], request_pem: str) -> IssuedUser:
        """A certificate for a request, or a token without one; the user's older credential ends.

        Raises RequestRefused, TooManyUsers, OSError; then nothing has changed. Writes a file: not for the
        event loop, and one call at a time.
        """
        old = self._records.get(name)
        if old is None and len(self._records) >= self._limits.users:
            raise TooManyUsers
        now = int(time.time())
        certificate = token = ""
        if request_pem:
            signed = self._authority.sign_user(request_pem, name, groups)
            certificate = signed.public_bytes(Encoding.PEM).decode()
            record = UserRecord(groups, now, serial=f"{signed.serial_number:x}")
        else:
            token = secrets.token_urlsafe(self._limits.join_token_bytes)
            record = UserRecord(groups, now, token_sha256=digest_of(token).hex())
        self._keep({**self._records, name: record}, self._removed - {name})
        return IssuedUser(certificate, token, now, old is not None)

    def remove(self, name: str) -> bool:
        """Ends a user's credential; False when there is none. Raises OSError. Writes a file, as `issue`."""
        if name not in self._records:
            return False
        left = {other: record for other, record in self._records.items() if other != name}
        self._keep(left, self._removed | {name})
        return True

    def _keep(self, records: dict[str, UserRecord], removed: set[str]) -> None:
        rows = {
            name: {"groups": r.groups, "created": r.created, "serial": r.serial, "token": r.token_sha256}
            for name, r in records.items()
        }
        content = {"users": rows, "removed": sorted(removed)}
        pki.write_private(self._path, orjson.dumps(content, option=orjson.OPT_INDENT_2))
        self._set(records, removed)

    def _set(self, records: dict[str, UserRecord], removed: set[str]) -> None:
        self._records, self._removed = records, removed
        self._tokens = {
            bytes.fromhex(r.token_sha256): UserInfo(name, (*r.groups, NAMES.group_authenticated))
            for name, r in records.items()
            if r.token_sha256
        }

    def _load(self) -> None:
        content = read_object(self._path)
        if content is None:
            return
        try:
            records = {name: _record(row) for name, row in content["users"].items()}
            removed = {str(name) for name in content["removed"]}
            self._set(records, removed)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise pki.PkiError(
                f"{self._path}: damaged; restore it from a copy, or delete it: then users' certificates that "
                "were ended count again until their names are removed"
            ) from error


def _record(row: Any) -> UserRecord:
    record = UserRecord(
        tuple(str(g) for g in row["groups"]), int(row["created"]), str(row["serial"]), str(row["token"])
    )
    bytes.fromhex(record.token_sha256)
    return record
