"""Tokens as they are kept, and the JSON files of the pki directory."""

import hashlib
from pathlib import Path
from typing import Any, cast

import orjson

from kube32.api.pki import PkiError

ADVICE = "restore it from a copy, or delete it to have new tokens made"


def digest_of(token: str) -> bytes:
    """A token's SHA-256: tables keyed by it tell nothing about a token by the time that a look-up takes."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file, None when there is no such file; PkiError when it is something else."""
    try:
        value = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PkiError(f"{path}: cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise PkiError(f"{path}: damaged or cut off: {error}; {ADVICE}") from error
    if not isinstance(value, dict):
        raise PkiError(f"{path}: damaged, it is no JSON object; {ADVICE}")
    return cast(dict[str, Any], value)
