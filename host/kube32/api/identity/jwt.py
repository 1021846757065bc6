"""JSON Web Tokens with ES256 (RFC 7515, 7518): signing, and checking a signature. Claims are the caller's."""

import base64
import binascii
import hashlib
from typing import Any

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

Object = dict[str, Any]
_HALF = 32
_ES256 = ec.ECDSA(hashes.SHA256())


class BadToken(Exception):
    """A text is no token signed with this key; str() says why."""


def key_id(key: ec.EllipticCurvePublicKey) -> str:
    """The `kid` of a key, as Kubernetes makes it: SHA-256 of its DER."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _encoded(hashlib.sha256(der).digest())


def sign(key: ec.EllipticCurvePrivateKey, claims: Object) -> str:
    """The token of some claims."""
    header = {"alg": "ES256", "kid": key_id(key.public_key())}
    signed = f"{_encoded(orjson.dumps(header))}.{_encoded(orjson.dumps(claims))}"
    r, s = decode_dss_signature(key.sign(signed.encode(), _ES256))
    return f"{signed}.{_encoded(r.to_bytes(_HALF, 'big') + s.to_bytes(_HALF, 'big'))}"


def verify(key: ec.EllipticCurvePublicKey, token: str) -> Object:
    """The claims of a token that was signed with `key`; BadToken."""
    parts = token.split(".")
    if len(parts) != 3 or not token.isascii():
        raise BadToken("it has not three parts")
    header, claims = _object(parts[0]), _object(parts[1])
    if header.get("alg") != "ES256":
        raise BadToken("it is not signed with ES256")
    signature = _decoded(parts[2])
    if len(signature) != 2 * _HALF:
        raise BadToken("its signature has the wrong length")
    halves = (int.from_bytes(half, "big") for half in (signature[:_HALF], signature[_HALF:]))
    try:
        key.verify(encode_dss_signature(*halves), f"{parts[0]}.{parts[1]}".encode(), _ES256)
    except InvalidSignature:
        raise BadToken("its signature is not this cluster's") from None
    return claims


def key_set(key: ec.EllipticCurvePublicKey) -> Object:
    """The public key as a JSON Web Key Set (RFC 7517), with which others check tokens."""
    numbers = key.public_numbers()
    x, y = (_encoded(n.to_bytes(_HALF, "big")) for n in (numbers.x, numbers.y))
    row = {"use": "sig", "kty": "EC", "kid": key_id(key), "crv": "P-256", "alg": "ES256", "x": x, "y": y}
    return {"keys": [row]}


def looks_like(token: str) -> bool:
    """Whether a bearer token has the form of a JSON Web Token."""
    return token.count(".") == 2 and token.startswith("ey")


def _object(part: str) -> Object:
    try:
        value = orjson.loads(_decoded(part))
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise BadToken("a part of it is no JSON object")
    return value


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadToken("a part of it is not base64url") from None
