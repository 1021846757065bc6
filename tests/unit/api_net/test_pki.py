"""The cluster CA: made once, found again, never made anew over damage; signs what a request may have."""

import base64
import ipaddress
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from kube32.api import pki
from kube32.contract import LIMITS


@pytest.fixture
def authority(tmp_path: Path) -> pki.Authority:
    return pki.Authority.open(tmp_path, LIMITS)


def csr(
    subject: list[tuple[x509.ObjectIdentifier, str]],
    names: list[x509.GeneralName] | None = None,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
) -> str:
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    key = key or ec.generate_private_key(ec.SECP256R1())
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


RIGHT = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, "system:node:devkit")]


def test_a_ca_is_found_again_as_it_was_made(tmp_path: Path) -> None:
    first = pki.Authority.open(tmp_path, LIMITS).cert_pem
    assert pki.Authority.open(tmp_path, LIMITS).cert_pem == first


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    directory.mkdir(mode=0o755)
    pki.private_directory(directory)
    authority = pki.Authority.open(directory, LIMITS)
    authority.server_pair(directory, ["localhost"])
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_certificates_are_valid_for_a_clock_that_is_unset(authority: pki.Authority) -> None:
    for pem in (authority.cert_pem, authority.make("x").cert_pem):
        certificate = x509.load_pem_x509_certificate(pem.encode())
        assert certificate.not_valid_before_utc == datetime(1970, 1, 1, tzinfo=UTC)
        assert certificate.not_valid_after_utc.year == 9999


@pytest.mark.parametrize("keep", [0, 1, 100, 300, 600], ids="first {} bytes".format)
def test_a_ca_that_was_cut_is_named_and_left_alone(tmp_path: Path, keep: int) -> None:
    pki.Authority.open(tmp_path, LIMITS)
    path = tmp_path / pki.CA_FILE
    cut = path.read_bytes()[:keep]
    path.write_bytes(cut)
    with pytest.raises(pki.PkiError, match=r"ca\.pem: damaged"):
        pki.Authority.open(tmp_path, LIMITS)
    assert path.read_bytes() == cut


def test_a_ca_whose_key_is_another_is_refused(tmp_path: Path) -> None:
    authority = pki.Authority.open(tmp_path, LIMITS)
    other = authority.make("other")
    (tmp_path / pki.CA_FILE).write_text(other.key_pem + authority.cert_pem)
    with pytest.raises(pki.PkiError, match="do not belong together"):
        pki.Authority.open(tmp_path, LIMITS)


def test_a_leaf_in_the_place_of_the_ca_is_refused(tmp_path: Path) -> None:
    authority = pki.Authority.open(tmp_path, LIMITS)
    pki.write_pair(tmp_path / pki.CA_FILE, authority.make("leaf"))
    with pytest.raises(pki.PkiError, match="not that of a CA"):
        pki.Authority.open(tmp_path, LIMITS)


def test_a_write_that_was_cut_short_before_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / f".{pki.CA_FILE}.1.tmp").write_bytes(b"half a key")
    assert pki.Authority.open(tmp_path, LIMITS).cert_pem.startswith("-----BEGIN CERTIFICATE")


def test_the_serving_certificate_is_kept_until_its_names_change(tmp_path: Path) -> None:
    authority = pki.Authority.open(tmp_path, LIMITS)
    first = authority.server_pair(tmp_path, ["localhost", "127.0.0.1"])
    assert authority.server_pair(tmp_path, ["127.0.0.1", "localhost"]).cert == first.cert
    again = authority.server_pair(tmp_path, ["127.0.0.1", "localhost", "192.168.4.1"])
    assert again.cert != first.cert
    names = again.cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(a) for a in names.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "192.168.4.1"}
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


def test_a_serving_certificate_of_another_ca_is_issued_again(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    pki.Authority.open(tmp_path / "a", LIMITS).server_pair(tmp_path, ["localhost"])
    authority = pki.Authority.open(tmp_path, LIMITS)
    pair = authority.server_pair(tmp_path, ["localhost"])
    pair.cert.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.cert_pem.encode()))


def test_a_node_gets_a_certificate_with_its_name_and_group(authority: pki.Authority) -> None:
    certificate = authority.sign_client(csr(RIGHT), "devkit")
    assert certificate.subject.rfc4514_string() == "CN=system:node:devkit,O=system:nodes"
    purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]


def test_a_serving_certificate_has_the_addresses_given_and_the_nodes_own_name(
    authority: pki.Authority,
) -> None:
    _, request = pki.make_request("devkit", ["10.0.0.7"])
    certificate = authority.sign_serving(request, "devkit", ["10.0.0.7"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]
    assert names.get_values_for_type(x509.DNSName) == ["devkit.node.kube32"]


@pytest.mark.parametrize(
    ("subject", "cause"),
    [
        ([RIGHT[0], (NameOID.COMMON_NAME, "system:node:other")], "subject"),
        ([RIGHT[0], (NameOID.COMMON_NAME, "kubernetes-admin")], "subject"),
        ([(NameOID.ORGANIZATION_NAME, "system:masters"), RIGHT[1]], "subject"),
        ([(NameOID.ORGANIZATION_NAME, "system:masters"), *RIGHT], "subject"),
        ([*RIGHT, (NameOID.COMMON_NAME, "system:node:other")], "subject"),
        ([RIGHT[1]], "subject"),
        ([], "subject"),
    ],
)
def test_a_request_for_anybody_else_is_refused(
    authority: pki.Authority, subject: list[tuple[x509.ObjectIdentifier, str]], cause: str
) -> None:
    with pytest.raises(pki.RequestRefused, match=cause):
        authority.sign_client(csr(subject), "devkit")
    with pytest.raises(pki.RequestRefused, match=cause):
        authority.sign_serving(csr(subject), "devkit", ["127.0.0.1"])


@pytest.mark.parametrize(
    "name",
    [
        x509.DNSName("kubernetes.default.svc"),
        x509.DNSName("localhost"),
        x509.DNSName("other.node.kube32"),
        x509.IPAddress(ipaddress.ip_address("10.0.0.1")),
        x509.UniformResourceIdentifier("spiffe://x"),
        x509.RFC822Name("a@b.c"),
    ],
    ids=str,
)
def test_a_request_for_an_address_that_was_not_given_is_refused(
    authority: pki.Authority, name: x509.GeneralName
) -> None:
    with pytest.raises(pki.RequestRefused, match="none of the addresses"):
        authority.sign_serving(csr(RIGHT, [name]), "devkit", ["10.0.0.7"])
    with pytest.raises(pki.RequestRefused, match="no subject alternative names"):
        authority.sign_client(csr(RIGHT, [name]), "devkit")


def test_a_key_of_another_kind_is_refused(authority: pki.Authority) -> None:
    for key in (rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())):
        with pytest.raises(pki.RequestRefused, match="P-256"):
            authority.sign_client(csr(RIGHT, key=key), "devkit")


NO_REQUEST = "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----"


@pytest.mark.parametrize("pem", ["", "x", NO_REQUEST])
def test_what_is_no_request_is_refused(authority: pki.Authority, pem: str) -> None:
    with pytest.raises(pki.RequestRefused):
        authority.sign_client(pem, "devkit")


def test_a_request_that_was_changed_after_signing_is_refused(authority: pki.Authority) -> None:
    der = bytearray(x509.load_pem_x509_csr(csr(RIGHT).encode()).public_bytes(Encoding.DER))
    at = der.index(b"system:node:devkit")
    der[at : at + 18] = b"system:node:hacker"
    pem = "-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(bytes(der)).decode()
    with pytest.raises(pki.RequestRefused):
        authority.sign_client(pem + "-----END CERTIFICATE REQUEST-----\n", "hacker")
