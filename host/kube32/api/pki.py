"""The cluster's CA and the certificates it signs (decisions, "Security").

Everything is ECDSA P-256. A key and its certificate share one file of mode 0600, written in one step, so that
no crash leaves half of a pair. A damaged file is named and never made anew: all nodes would have to join
again.
"""

import ipaddress
import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kube32.contract import NAMES, Limits

CA_FILE = "ca.pem"
SERVER_FILE = "apiserver.pem"


class PkiError(Exception):
    """A file of the pki directory cannot be used; str() is one sentence that names it and says what to do."""


class RequestRefused(Exception):
    """A certificate request asks for what it may not have; `cause` says what."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Pair:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    cert: x509.Certificate

    @property
    def key_pem(self) -> str:
        """The key, PKCS #8 without a password."""
        return key_pem(self.key)

    @property
    def cert_pem(self) -> str:
        """The certificate."""
        return self.cert.public_bytes(serialization.Encoding.PEM).decode()


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """A key as PEM, PKCS #8 without a password."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def write_private(path: Path, data: bytes) -> None:
    """Writes a file of mode 0600 in one step: a crash leaves the old content or the new. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_directory(directory: Path) -> None:
    """Makes a directory of mode 0700, or takes others' rights from one that is there."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)


def node_server_name(node: str) -> str:
    """The DNS name in a kubelet's serving certificate: which node answers, whatever address it claims."""
    return f"{node}{NAMES.node_server_suffix}"


def read_pair(path: Path) -> Pair | None:
    """The pair in `path`, None when there is no such file; PkiError when it is damaged or cut off."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PkiError(f"{path}: cannot be read: {error.strerror}") from error
    advice = "restore it from a copy, or delete it and let every node join again"
    try:
        key = serialization.load_pem_private_key(data, password=None)
        cert = x509.load_pem_x509_certificate(data)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PkiError(f"{path}: damaged, it does not hold a key and a certificate; {advice}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise PkiError(f"{path}: its key is not ECDSA P-256; {advice}")
    if cert.public_key() != key.public_key():
        raise PkiError(f"{path}: damaged, key and certificate do not belong together; {advice}")
    return Pair(key, cert)


def write_pair(path: Path, pair: Pair) -> None:
    """Writes a pair as one private file, in the order that ssl.SSLContext.load_cert_chain reads."""
    write_private(path, (pair.key_pem + pair.cert_pem).encode())


def general_names(names: Iterable[str]) -> list[x509.GeneralName]:
    """Subject alternative names, each once: IP addresses as such, the rest as DNS names."""
    found: dict[str, x509.GeneralName] = {}
    for name in names:
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            found[name] = x509.DNSName(name)
        else:
            found[str(address)] = x509.IPAddress(address)
    return list(found.values())


class Authority:
    """The cluster CA: makes and signs the certificates of API server and kubelets."""

    def __init__(self, pair: Pair, limits: Limits) -> None:
        self._pair = pair
        self._limits = limits

    @classmethod
    def open(cls, directory: Path, limits: Limits) -> "Authority":
        """The CA of a pki directory, made when there is none; PkiError, OSError."""
        path = directory / CA_FILE
        pair = read_pair(path)
        if pair is None:
            key = ec.generate_private_key(ec.SECP256R1())
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube32-ca")])
            builder = _builder(name, name, key.public_key(), limits)
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
            identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
            builder = builder.add_extension(identifier, critical=False)
            pair = Pair(key, builder.sign(key, hashes.SHA256()))
            write_pair(path, pair)
        elif not _is_authority(pair.cert):
            raise PkiError(f"{path}: its certificate is not that of a CA; restore it from a copy")
        return cls(pair, limits)

    @property
    def cert_pem(self) -> str:
        """The CA's certificate, what clients and nodes trust."""
        return self._pair.cert_pem

    def issue(
        self,
        key: ec.EllipticCurvePublicKey,
        user: str,
        groups: tuple[str, ...] = (),
        *,
        names: Iterable[str] = (),
        server: bool = False,
    ) -> x509.Certificate:
        """A client certificate of `user` (CN) in `groups` (O); with `server` a serving one for `names`."""
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        issuer = self._pair.cert
        builder = _builder(x509.Name(subject), issuer.subject, key, self._limits)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._pair.key.public_key())
        builder = builder.add_extension(authority, critical=False)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        if server:
            builder = builder.add_extension(x509.SubjectAlternativeName(general_names(names)), critical=False)
        return builder.sign(self._pair.key, hashes.SHA256())

    def make(
        self, user: str, groups: tuple[str, ...] = (), *, names: Iterable[str] = (), server: bool = False
    ) -> Pair:
        """A new key with its certificate, as `issue`."""
        key = ec.generate_private_key(ec.SECP256R1())
        return Pair(key, self.issue(key.public_key(), user, groups, names=names, server=server))

    def sign_user(self, request_pem: str, user: str, groups: tuple[str, ...]) -> x509.Certificate:
        """The client certificate for a user's request; RequestRefused when it names anybody else."""
        request = checked_request(request_pem)
        names = [str(part.value) for part in request.subject if part.oid == NameOID.COMMON_NAME]
        asked = [str(part.value) for part in request.subject if part.oid == NameOID.ORGANIZATION_NAME]
        if names != [user] or len(list(request.subject)) != 1 + len(asked) or set(asked) != set(groups):
            told = ", ".join([*(f"O={group}" for group in groups), f"CN={user}"])
            raise RequestRefused(f"its subject must be {told} and nothing else")
        if _requested_names(request):
            raise RequestRefused("a client certificate has no subject alternative names")
        return self.issue(_request_key(request), user, groups)

    def server_pair(self, directory: Path, names: Iterable[str]) -> Pair:
        """The API server's serving pair in `directory`; issued again when the names or the CA are others."""
        wanted = general_names(names)
        path = directory / SERVER_FILE
        pair = read_pair(path)
        if (
            pair is not None
            and _signed_by(pair.cert, self._pair.cert)
            and set(_names_of(pair.cert)) == set(wanted)
        ):
            return pair
        pair = self.make("kube-apiserver", names=names, server=True)
        write_pair(path, pair)
        return pair

    def sign_client(self, request_pem: str, node: str) -> x509.Certificate:
        """The client certificate for a node's request; RequestRefused when it names anybody else."""
        request = read_request(request_pem, node)
        if _requested_names(request):
            raise RequestRefused("a client certificate has no subject alternative names")
        return self.issue(_request_key(request), f"{NAMES.user_node_prefix}{node}", (NAMES.group_nodes,))

    def sign_serving(self, request_pem: str, node: str, addresses: Iterable[str]) -> x509.Certificate:
        """The serving certificate for a node's request, for its addresses and its own DNS name.

        RequestRefused when the request names anything but these.
        """
        request = read_request(request_pem, node)
        names = [*addresses, node_server_name(node)]
        allowed = set(general_names(names))
        for name in _requested_names(request):
            if name not in allowed:
                raise RequestRefused(f"subject alternative name {name.value} is none of the addresses given")
        user = f"{NAMES.user_node_prefix}{node}"
        return self.issue(_request_key(request), user, (NAMES.group_nodes,), names=names, server=True)


def read_request(pem: str, node: str) -> x509.CertificateSigningRequest:
    """A node's request with its signature, key and subject checked; RequestRefused."""
    request = checked_request(pem)
    subject = sorted((part.oid.dotted_string, str(part.value)) for part in request.subject)
    user = f"{NAMES.user_node_prefix}{node}"
    wanted = {NameOID.COMMON_NAME: user, NameOID.ORGANIZATION_NAME: NAMES.group_nodes}
    if subject != sorted((oid.dotted_string, value) for oid, value in wanted.items()):
        raise RequestRefused(f"its subject must be O={NAMES.group_nodes}, CN={user} and nothing else")
    return request


def checked_request(pem: str) -> x509.CertificateSigningRequest:
    """A certificate request with its signature and key checked and its subject readable; RequestRefused."""
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        signed = request.is_signature_valid
        key = request.public_key()
        list(request.subject)
    except (ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
        raise RequestRefused("not a PEM certificate request") from error
    if not signed:
        raise RequestRefused("its signature does not match its key")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise RequestRefused("its key is not ECDSA P-256")
    return request


def make_request(node: str, names: Iterable[str] = ()) -> tuple[str, str]:
    """A new key and a certificate request of `node` for `names`, both PEM: what a worker sends to join."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, NAMES.group_nodes),
        x509.NameAttribute(NameOID.COMMON_NAME, f"{NAMES.user_node_prefix}{node}"),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if alternatives := general_names(names):
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    request = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return pem.decode(), request.decode()


def client_context(ca_pem: str, chain: Path) -> ssl.SSLContext:
    """TLS to peers of this cluster, with the client certificate in the file `chain`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=ca_pem)
    context.load_cert_chain(chain)
    return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, limits: Limits
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(limits.certificate_not_before_s, UTC))
        .not_valid_after(datetime.fromtimestamp(limits.certificate_not_after_s, UTC))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _is_authority(cert: x509.Certificate) -> bool:
    try:
        return cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _signed_by(cert: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        cert.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names_of(holder: x509.Certificate | x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    try:
        return list(holder.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _requested_names(request: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    try:
        return _names_of(request)
    except (ValueError, x509.DuplicateExtension) as error:
        raise RequestRefused("its extensions are not well formed") from error


def _request_key(request: x509.CertificateSigningRequest) -> ec.EllipticCurvePublicKey:
    key = request.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)  # read_request has looked
    return key
