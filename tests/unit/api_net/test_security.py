"""Who a request comes from: tokens, certificates, and what is kept of them on disk."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from kube32.api import pki
from kube32.api.http import Request
from kube32.api.security import NODES_FILE, TOKENS_FILE, Security, TooManyNodes
from kube32.api.status import ApiFailure
from kube32.contract import LIMITS


@pytest.fixture
def security(tmp_path: Path) -> Security:
    return Security.create(tmp_path, LIMITS, advertise=[])


def bearer(token: str) -> Request:
    return Request("GET", "/api", headers={"Authorization": f"Bearer {token}"})


def shown(certificate_pem: str) -> dict[str, Any]:
    """A certificate as ssl.SSLSocket.getpeercert tells it."""
    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    names = {x509.NameOID.COMMON_NAME: "commonName", x509.NameOID.ORGANIZATION_NAME: "organizationName"}
    subject = tuple(((names[a.oid], str(a.value)),) for a in certificate.subject)
    return {"subject": subject, "serialNumber": f"{certificate.serial_number:040X}"}


def with_certificate(pem: str) -> Request:
    return Request("GET", "/api", peer_certificate=shown(pem))


def join(security: Security, name: str, token: str = "") -> tuple[str, str]:
    """A node's client certificate and token."""
    _, client = pki.make_request(name)
    _, serving = pki.make_request(name, ["127.0.0.1"])
    issued = security.issue_node(name, client, serving, ["127.0.0.1"], token)
    return issued.certificate, issued.token


def test_each_token_tells_its_user(security: Security) -> None:
    for token, name, group in (
        (security.admin_token, "kubernetes-admin", "system:masters"),
        (security.join_token, "system:kube32:join", "system:authenticated"),
        (security.controller_token, "system:kube32:controllers", "system:kube32:controllers"),
    ):
        user = security.authenticate(bearer(token))
        assert user is not None
        assert user.name == name
        assert group in user.groups


def test_tokens_are_long_random_and_stay_the_same(security: Security, tmp_path: Path) -> None:
    tokens = {security.admin_token, security.join_token, security.controller_token}
    assert len(tokens) == 3
    assert all(len(token) >= 43 for token in tokens)
    again = Security.create(tmp_path, LIMITS, advertise=[])
    assert {again.admin_token, again.join_token, again.controller_token} == tokens


def test_no_credential_is_system_anonymous(security: Security) -> None:
    user = security.authenticate(Request("GET", "/api"))
    assert (user.name, user.groups) == ("system:anonymous", ("system:unauthenticated",))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Basic YWRtaW46YWRtaW4=",
        "Bearer \udcff",
        "{token}",
        "Bearer {token}x",
    ],
)
def test_a_credential_that_is_not_valid_is_401(security: Security, header: str) -> None:
    header = header.replace("{token}", security.admin_token)
    with pytest.raises(ApiFailure) as failure:
        security.authenticate(Request("GET", "/api", headers={"Authorization": header}))
    assert failure.value.status()["reason"] == "Unauthorized"
    assert failure.value.code == 401


def test_the_scheme_is_read_in_any_case(security: Security) -> None:
    headers = {"authorization": f"bEaReR  {security.admin_token}"}
    request = Request("GET", "/api", headers={"Authorization": headers["authorization"]})
    assert security.authenticate(request) is not None


def test_a_node_is_known_by_its_token_and_by_its_certificate_after_a_restart(
    security: Security, tmp_path: Path
) -> None:
    certificate, token = join(security, "devkit")
    for found in (security, Security.create(tmp_path, LIMITS, advertise=[])):
        for request in (bearer(token), with_certificate(certificate)):
            user = found.authenticate(request)
            assert user is not None
            assert user.name == "system:node:devkit"
            assert "system:nodes" in user.groups


def test_a_node_that_joins_anew_ends_its_older_credentials(security: Security) -> None:
    certificate, token = join(security, "devkit")
    new_certificate, new_token = join(security, "devkit")
    for request in (bearer(token), with_certificate(certificate)):
        with pytest.raises(ApiFailure):
            security.authenticate(request)
    assert security.authenticate(bearer(new_token)) is not None
    assert security.authenticate(with_certificate(new_certificate)) is not None


def test_a_node_that_joins_with_its_token_keeps_it(security: Security) -> None:
    _, token = join(security, "devkit")
    assert join(security, "devkit", token)[1] == token
    assert security.authenticate(bearer(token)) is not None


def test_a_forgotten_node_is_nobody(security: Security) -> None:
    certificate, token = join(security, "devkit")
    security.forget_nodes(["devkit", "never-joined"])
    for request in (bearer(token), with_certificate(certificate)):
        with pytest.raises(ApiFailure):
            security.authenticate(request)


def test_the_local_nodes_credentials_are_those_of_its_node(security: Security) -> None:
    local = security.local_node_credentials("main", ["127.0.0.1"])
    for request in (bearer(local.token), with_certificate(local.cert_pem)):
        user = security.authenticate(request)
        assert user is not None
        assert user.name == "system:node:main"


def test_the_api_servers_own_certificate_gives_no_rights_in_the_api(
    security: Security, tmp_path: Path
) -> None:
    pair = pki.read_pair(tmp_path / "pki" / "apiserver-kubelet-client.pem")
    assert pair is not None
    user = security.authenticate(with_certificate(pair.cert_pem))
    assert user is not None
    assert user.groups == ("system:authenticated",)


def test_a_certificate_without_one_name_is_401(security: Security) -> None:
    for subject in ((), ((("commonName", "a"),), (("commonName", "b"),))):
        with pytest.raises(ApiFailure):
            security.authenticate(Request("GET", "/", peer_certificate={"subject": subject}))


def test_what_is_on_disk_is_private_and_holds_no_nodes_token(security: Security, tmp_path: Path) -> None:
    _, token = join(security, "devkit")
    directory = tmp_path / "pki"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for path in directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert token.encode() not in path.read_bytes()


@pytest.mark.parametrize("name", [TOKENS_FILE, NODES_FILE])
@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"admin": 1}', b'{"admin": "short"}', b"\xff\xfe"])
def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path, name: str, damage: bytes) -> None:
    join(Security.create(tmp_path, LIMITS, advertise=[]), "devkit")
    path = tmp_path / "pki" / name
    path.write_bytes(damage)
    with pytest.raises(pki.PkiError) as error:
        Security.create(tmp_path, LIMITS, advertise=[])
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == damage


def test_no_more_nodes_are_taken_than_the_limit(tmp_path: Path) -> None:
    security = Security.create(tmp_path, LIMITS.replace(join_nodes=2), advertise=[])
    join(security, "a")
    join(security, "b")
    with pytest.raises(TooManyNodes):
        join(security, "c")
    join(security, "a")


@pytest.mark.parametrize("breakage", ["client", "serving", "disk"])
def test_a_join_that_fails_changes_nothing(
    security: Security, monkeypatch: pytest.MonkeyPatch, breakage: str
) -> None:
    _, token = join(security, "devkit")
    _, good = pki.make_request("devkit")
    _, bad = pki.make_request("other")
    if breakage == "disk":
        monkeypatch.setattr(pki, "write_private", _full_disk)
    with pytest.raises((pki.RequestRefused, OSError)):
        security.issue_node(
            "devkit",
            bad if breakage == "client" else good,
            bad if breakage == "serving" else good,
            ["127.0.0.1"],
        )
    assert security.authenticate(bearer(token)) is not None


def _full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_the_serving_certificate_covers_localhost_and_what_is_advertised(tmp_path: Path) -> None:
    Security.create(tmp_path, LIMITS, advertise=["192.168.4.1", "cluster.local"])
    pair = pki.read_pair(tmp_path / "pki" / pki.SERVER_FILE)
    assert pair is not None
    names = pair.cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(a) for a in names.get_values_for_type(x509.IPAddress)}
    assert {"127.0.0.1", "::1", "192.168.4.1"} <= addresses
    assert {"localhost", "kubernetes.default.svc", "cluster.local"} <= set(
        names.get_values_for_type(x509.DNSName)
    )


@pytest.mark.parametrize("make", [Security.server_ssl_context, Security.kubelet_client_ssl_context])
def test_tls_contexts_can_be_made(security: Security, make: Callable[[Security], object]) -> None:
    assert make(security) is not None
