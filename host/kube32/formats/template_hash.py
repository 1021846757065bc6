"""The name of a pod template: ten characters that change when the template does (label pod-template-hash)."""

import hashlib
from typing import Any

import orjson

# Kubernetes' safe alphabet: no vowels and no digits that look like letters, so no words by chance.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LENGTH = 10
_HASH_LABEL = "pod-template-hash"


def template_hash(template: dict[str, Any]) -> str:
    """Ten characters over the template's canonical JSON, its own hash label left out."""
    metadata = dict(template.get("metadata") or {})
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != _HASH_LABEL}
    metadata = (
        {**metadata, "labels": labels} if labels else {k: v for k, v in metadata.items() if k != "labels"}
    )
    canonical = orjson.dumps({**template, "metadata": metadata}, option=orjson.OPT_SORT_KEYS)
    number = int.from_bytes(hashlib.sha256(canonical).digest(), "big")
    characters = []
    for _ in range(_LENGTH):
        number, rest = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[rest])
    return "".join(characters)
