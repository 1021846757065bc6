"""Users' certificates and tokens: made for those who may impersonate, replaced, and ended."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.unit.api_rbac.conftest import Person

from kube32.api import pki
from kube32.api.http import Request
from kube32.api.identity.users import USERS_FILE
from kube32.api.security import Security
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS

USERS = "/apis/kube32.io/v1/users"
MakePerson = Callable[..., Awaitable[Person]]
_SHOWN = {x509.NameOID.COMMON_NAME: "commonName", x509.NameOID.ORGANIZATION_NAME: "organizationName"}


def csr(name: str, *groups: str, curve: Any = None, alternative: str = "") -> str:
    key = ec.generate_private_key(curve or ec.SECP256R1())
    subject = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject.append(x509.NameAttribute(x509.NameOID.COMMON_NAME, name))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if alternative:
        names = x509.SubjectAlternativeName([x509.DNSName(alternative)])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def user(name: str, *groups: str, request: str = "") -> dict[str, Any]:
    spec = {"groups": list(groups), **({"request": request} if request else {})}
    return {"apiVersion": "kube32.io/v1", "kind": "User", "metadata": {"name": name}, "spec": spec}


def asking_with(pem: str) -> Request:
    certificate = x509.load_pem_x509_certificate(pem.encode())
    subject = tuple(((_SHOWN[a.oid], str(a.value)),) for a in certificate.subject)
    shown = {"subject": subject, "serialNumber": f"{certificate.serial_number:040X}"}
    return Request("GET", "/apis", peer_certificate=shown)


async def certificate(api: Any, name: str, *groups: str) -> str:
    answer = await api.create(USERS, user(name, *groups, request=csr(name, *groups)))
    assert "token" not in answer["status"]
    return str(answer["status"]["certificate"])


async def test_a_certificate_tells_its_user_and_groups(api: Any) -> None:
    pem = await certificate(api, "vera", "team", "kube32:view")
    found = api.server.security.authenticate(asking_with(pem))
    assert (found.name, found.groups) == ("vera", ("team", "kube32:view", "system:authenticated"))


async def test_a_new_credential_ends_the_old_one(api: Any) -> None:
    security = api.server.security
    old = await certificate(api, "vera")
    new = await certificate(api, "vera")
    assert security.authenticate(asking_with(new)).name == "vera"
    answer = await api.create(USERS, user("vera"))
    assert answer["status"]["replaced"] is True
    for pem in (old, new):
        with pytest.raises(ApiFailure) as failure:
            security.authenticate(asking_with(pem))
        assert failure.value.code == 401
    assert await Person(api, "vera", answer["status"]["token"]).code("GET /apis") == 200


async def test_a_removed_users_credentials_are_refused_also_after_a_restart(
    api: Any, person: MakePerson, pki_dir: Path
) -> None:
    pem = await certificate(api, "vera")
    tim = await person("tim")
    other = await certificate(api, "otto")
    for name in ("vera", "tim"):
        assert (await api.send("DELETE", f"{USERS}/{name}")).status == 200
    assert await tim.code("GET /apis") == 401
    for security in (api.server.security, Security.create(pki_dir, LIMITS, advertise=[])):
        with pytest.raises(ApiFailure):
            security.authenticate(asking_with(pem))
        assert security.authenticate(asking_with(other)).name == "otto"
    answer = await api.send("DELETE", f"{USERS}/vera")
    assert (answer.status, answer.message) == (404, "no credential was issued to a user vera")


async def test_a_certificate_that_the_cas_owner_signed_by_hand_counts(api: Any, pki_dir: Path) -> None:
    authority = pki.Authority.open(pki_dir / "pki", LIMITS)
    found = api.server.security.authenticate(asking_with(authority.make("hanna", ("team",)).cert_pem))
    assert found.name == "hanna"


async def test_users_are_listed_without_their_secrets(api: Any, person: MakePerson) -> None:
    await certificate(api, "vera", "team")
    tim = await person("tim")
    answer = await api.get(USERS)
    rows = {row["metadata"]["name"]: row for row in answer.json["items"]}
    assert rows["vera"]["spec"] == {"groups": ["team"]}
    assert [rows[name]["status"]["credential"] for name in ("vera", "tim")] == ["certificate", "token"]
    assert (await api.get(f"{USERS}/vera")).json["kind"] == "User"
    assert (await api.get(f"{USERS}/absent")).status == 404
    stored = (api.server.data_dir / "pki" / USERS_FILE).read_text()
    assert tim.token not in stored
    assert tim.token.encode() not in answer.body


BAD_NAMES = ["system:node:x", "system:x", "", "a b", "a/b", "-a", "a-", "ä", "a" * 65, "a\n", "kube32:user"]


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_bad_name_is_refused_with_a_reason(api: Any, name: str) -> None:
    answer = await api.send("POST", USERS, user(name))
    assert answer.status == 422
    assert f'"{name}" is' in answer.message


@pytest.mark.parametrize("group", ["system:nodes", "system:kube32:controllers", "", "a b", "a" * 65])
async def test_a_bad_group_is_refused(api: Any, group: str) -> None:
    assert (await api.send("POST", USERS, user("vera", group))).status == 422


@pytest.mark.parametrize(
    "request_pem",
    [
        "nonsense",
        csr("otto"),
        csr("vera", "system:masters"),
        csr("system:node:x", "system:nodes"),
        csr("vera", curve=ec.SECP384R1()),
        csr("vera", alternative="kubernetes"),
    ],
)
async def test_a_request_for_anybody_else_is_refused(api: Any, request_pem: str) -> None:
    answer = await api.send("POST", USERS, user("vera", request=request_pem))
    assert answer.status == 422
    assert (await api.get(f"{USERS}/vera")).status == 404


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        {"kind": "User"},
        {"apiVersion": "kube32.io/v1", "kind": "User"},
        {"apiVersion": "kube32.io/v1", "kind": "User", "metadata": {"name": 7}},
        {"apiVersion": "kube32.io/v1", "kind": "User", "metadata": {"name": "a"}, "spec": []},
        {"apiVersion": "kube32.io/v1", "kind": "User", "metadata": {"name": "a"}, "spec": {"groups": "x"}},
        {"apiVersion": "kube32.io/v1", "kind": "User", "metadata": {"name": "a"}, "spec": {"request": 1}},
    ],
)
async def test_a_body_that_is_no_user_is_400(api: Any, body: Any) -> None:
    assert (await api.send("POST", USERS, body)).status == 400


async def test_only_those_who_may_be_somebody_make_its_credential(person: MakePerson) -> None:
    maker = {"apiGroups": ["kube32.io"], "resources": ["users"], "verbs": ["create"]}
    be = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["vera"]}
    plain = await person("paul", maker)
    message = await plain.refusal(f"POST {USERS}", user("vera"))
    assert message.startswith('users "vera" is forbidden: User "paul" cannot impersonate resource "users"')
    trusted = await person("tess", maker, be)
    assert await trusted.code(f"POST {USERS}", user("vera")) == 201
    assert await trusted.code(f"POST {USERS}", user("kubernetes-admin")) == 403
    assert 'groups "system:masters"' in await trusted.refusal(f"POST {USERS}", user("vera", "system:masters"))


async def test_other_methods_and_paths_are_not_served(api: Any) -> None:
    for method, path, code in (
        ("PUT", f"{USERS}/vera", 405),
        ("PATCH", f"{USERS}/vera", 405),
        ("POST", f"{USERS}/vera", 405),
        ("DELETE", USERS, 405),
        ("GET", f"{USERS}/vera/status", 404),
        ("GET", "/apis/kube32.io/v1/namespaces/default/users", 404),
    ):
        assert (await api.send(method, path, {} if method != "GET" else None)).status == code, (method, path)


def test_no_more_users_are_taken_than_the_limit(tmp_path: Path) -> None:
    from kube32.api.identity.users import TooManyUsers

    users = Security.create(tmp_path, LIMITS.replace(users=2), advertise=[]).users
    users.issue("a", (), "")
    users.issue("b", (), "")
    with pytest.raises(TooManyUsers):
        users.issue("c", (), "")
    assert users.issue("a", (), "").replaced
    users.remove("a")
    users.issue("c", (), "")


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b"{}", b'{"users": [], "removed": []}', b'{"users": {"a": {}}, "removed": []}'],
)
def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path, damage: bytes) -> None:
    Security.create(tmp_path, LIMITS, advertise=[]).users.issue("a", (), "")
    path = tmp_path / "pki" / USERS_FILE
    path.write_bytes(damage)
    with pytest.raises(pki.PkiError) as error:
        Security.create(tmp_path, LIMITS, advertise=[])
    assert str(path) in str(error.value)
    assert path.read_bytes() == damage


def test_a_write_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = Security.create(tmp_path, LIMITS, advertise=[]).users
    users.issue("a", (), "")
    before = users.records

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pki, "write_private", full)
    for change in (
        lambda: users.issue("a", (), ""),
        lambda: users.issue("b", (), ""),
        lambda: users.remove("a"),
    ):
        with pytest.raises(OSError):
            change()
    assert users.records == before
