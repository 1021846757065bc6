"""A worker's credentials: joins once with the kubeconfig's join token, then keeps what it got in DIR/node."""

import ipaddress
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kube32.client.api import ApiClient, ApiError
from kube32.client.http import HttpTransport
from kube32.client.kubeconfig import ClusterAccess
from kube32.contract import NAMES, VERSIONS
from kube32.sim.options import StartError
from kube32.sim.process import write_private

JOIN_PATH = "/apis/kube32.io/v1/join"


@dataclass(frozen=True, slots=True)
class WorkerCredentials:
    """PEM texts and the node's own token, as kept in DIR/node/credentials.json."""

    cert_pem: str
    key_pem: str
    serving_cert_pem: str
    serving_key_pem: str
    ca_pem: str
    token: str


def _key() -> tuple[ec.EllipticCurvePrivateKey, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key, pem.decode()


def _request(key: ec.EllipticCurvePrivateKey, user: str, address: str = "") -> str:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, NAMES.group_nodes),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if address:
        name = x509.IPAddress(ipaddress.ip_address(address))
        builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def load(path: Path) -> WorkerCredentials | None:
    """The kept credentials, None when there are none; StartError when the file is damaged."""
    try:
        return WorkerCredentials(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise StartError(f"{path}: cannot be read ({error}); delete it to join again") from None


async def join(access: ClusterAccess, name: str, address: str, path: Path) -> WorkerCredentials:
    """Joins the cluster as node `name`; an earlier credential of this name proves that the name is ours."""
    kept = load(path)
    key, key_pem = _key()
    serving_key, serving_key_pem = _key()
    user = f"{NAMES.user_node_prefix}{name}"
    body: dict[str, Any] = {
        "apiVersion": "kube32.io/v1",
        "kind": "Join",
        "spec": {
            "nodeName": name,
            "request": _request(key, user),
            "servingRequest": _request(serving_key, user, address),
            "addresses": [address],
            "versions": VERSIONS,
        },
    }
    answer = None
    if kept is not None:
        answer = await _post(access, kept.token, body, or_none=True)
    if answer is None:
        answer = await _post(access, access.token, body)
    assert answer is not None
    status = answer["status"]
    credentials = WorkerCredentials(
        status["certificate"],
        key_pem,
        status["servingCertificate"],
        serving_key_pem,
        status["ca"],
        status["token"],
    )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, json.dumps(asdict(credentials), indent=2))
    return credentials


async def _post(
    access: ClusterAccess, token: str | None, body: dict[str, Any], or_none: bool = False
) -> dict[str, Any] | None:
    transport = HttpTransport(access.server, ssl_context=access.ssl_context, token=token)
    client = ApiClient(transport)
    try:
        headers = {"Content-Type": "application/json"}
        async with await client.raw("POST", JOIN_PATH, headers=headers, body=orjson.dumps(body)) as response:
            await client.check(response)
            answer: dict[str, Any] = orjson.loads(await response.read())
            return answer
    except ApiError as error:
        if or_none and error.code in (401, 403):
            return None
        raise StartError(f"{access.server} does not let this node join: {error.message}") from None
    finally:
        await transport.close()
