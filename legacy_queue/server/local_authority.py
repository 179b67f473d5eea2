"""A certificate authority in a folder, and the server certificate that it signs.

The authority can sign only for its DNS names, by name constraints, and for any IP address: OpenSSL 1.0.2, and
so Node.js 6 to 8, refuses each certificate for an address whose authority has constraints of addresses
("unsupported name constraint type"). Keys are EC P-256, which TLS libraries of 2016 accept. Source: RFC 5280,
4.2.1.10.
"""

import ipaddress
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeAlias

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from filelock import FileLock
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from legacy_queue.config.certificate_names import names_of
from legacy_queue.config.tls_files import TlsFiles
from legacy_queue.private_folder import make_private, write_private

log = structlog.get_logger()

ALWAYS = ("localhost", "127.0.0.1", "::1")  # in each certificate
_AUTHORITY_LIFE = timedelta(days=3652)
_SERVER_LIFE = timedelta(days=90)
_RENEWED_BEFORE_EXPIRY = timedelta(days=30)
_BACKDATED = timedelta(days=1)  # for clients whose clock is late
_AUTHORITY_NAME = "legacy-queue local authority"

_Name: TypeAlias = x509.DNSName | x509.IPAddress


class Issued(NamedTuple):
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


class LocalAuthority:
    """The files of the folder; ``names`` are DNS names and IP addresses beside ``ALWAYS``.

    ``certificate`` is the authority's, for clients; ``bundle`` adds the authorities that requests trusts.
    ``server`` is the private key and the certificate of the server in one file, which is replaced atomically.
    """

    def __init__(self, folder: Path, names: Sequence[str] = ()) -> None:
        self._folder = folder
        self._names = tuple(dict.fromkeys((*ALWAYS, *names)))
        self.server, _, self.certificate = TlsFiles.in_folder(folder)
        self.bundle = self.certificate.with_name("bundle.pem")
        self._authority = self.certificate.with_name("authority.pem")  # key and certificate

    def ensure(self, now: datetime) -> None:
        """Create or renew the files, so that they cover all ``names`` for another month. Raises OSError.

        Of several concurrent processes, only one does so. An authority that lacks a DNS name, or has
        constraints of addresses, is replaced by one for the old names and the new, which clients must then
        trust: so two servers with different names do not replace each other's authority. A damaged file
        counts as missing.
        """
        make_private(self._folder)
        with FileLock(self._folder / "lock", mode=0o600):
            authority = self._good_authority(now)
            server = read_issued(self.server)
            is_good = (
                server
                and _is_signed_by(server, authority)
                and _ends_after(server, now + _RENEWED_BEFORE_EXPIRY)
                and set(self._names) <= set(_names_of(server))
            )
            if not is_good:
                names = tuple(dict.fromkeys((*self._names, *(_names_of(server) if server else ()))))
                self._write(self.server, private_pem(issue_server(authority, names, now)))
                log.info("tls-certificate-made", names=names)
            public = _pem(authority.certificate)
            self._write(self.certificate, public)
            self._write(self.bundle, f"{Path(DEFAULT_CA_BUNDLE_PATH).read_text()}\n{public}")

    def _good_authority(self, now: datetime) -> Issued:
        old = read_issued(self._authority)
        constrained = _constraints_of(old) if old else ()
        wanted = _dns_names(self._names)
        is_good = set(wanted) <= set(constrained) == set(_dns_names(constrained))
        if old and _ends_after(old, now + _SERVER_LIFE) and is_good:
            return old
        names = tuple(dict.fromkeys((*wanted, *_dns_names(constrained))))
        issued = _authority(names, now)
        self._write(self._authority, private_pem(issued))
        log.warning(
            "tls-authority-replaced" if old else "tls-authority-made",
            path=str(self.certificate),
            names=names,
            **({"hint": "every client must trust the new authority: see legacy-queue ca"} if old else {}),
        )
        return issued

    def _write(self, path: Path, text: str) -> None:
        """Replace the file atomically, unless it has this text."""
        if not path.is_file() or path.read_bytes() != text.encode():
            new = path.with_suffix(".new")
            write_private(new, text)
            new.replace(path)


def read_issued(path: Path) -> Issued | None:
    """Key and certificate of a file; None where they are missing, damaged or do not match."""
    try:
        text = path.read_bytes()
        key = serialization.load_pem_private_key(text, None)
        certificate = x509.load_pem_x509_certificate(text)
    except (FileNotFoundError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.public_key() == certificate.public_key():
        return Issued(key, certificate)
    return None


def _names_of(issued: Issued) -> tuple[str, ...]:
    return names_of(issued.certificate)


def _constraints_of(issued: Issued) -> tuple[str, ...]:
    try:
        constraints = issued.certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return ()
    return _texts([name for name in constraints.permitted_subtrees or () if isinstance(name, _Name)])


def _texts(names: Sequence[_Name]) -> tuple[str, ...]:
    return tuple(str(name.value).removesuffix("/32").removesuffix("/128") for name in names)


def _is_signed_by(issued: Issued, authority: Issued) -> bool:
    try:
        issued.certificate.verify_directly_issued_by(authority.certificate)
    except Exception:  # noqa: BLE001 - ValueError, TypeError or InvalidSignature: another authority
        return False
    return True


def _ends_after(issued: Issued, time: datetime) -> bool:
    return issued.certificate.not_valid_after_utc > time


def _authority(names: Sequence[str], now: datetime) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(f"{_AUTHORITY_NAME} {os.urandom(4).hex()}")  # OpenSSL looks an issuer up by its name
    usage = _usage(key_cert_sign=True, crl_sign=True)
    constraints = x509.NameConstraints([x509.DNSName(name) for name in names], None)
    certificate = (
        _builder(subject, key, now, _AUTHORITY_LIFE)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(constraints, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Issued(key, certificate)


def issue_server(authority: Issued, names: Sequence[str], now: datetime) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    issuer = authority.key.public_key()
    certificate = (
        _builder(_subject(names[0]), key, now, _SERVER_LIFE)
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Issued(key, certificate)


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(**granted: bool) -> x509.KeyUsage:
    names = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement "
        "key_cert_sign crl_sign encipher_only decipher_only"
    )
    return x509.KeyUsage(**{name: granted.get(name, False) for name in names.split()})


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _general_name(name: str) -> _Name:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _dns_names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if isinstance(_general_name(name), x509.DNSName))


def private_pem(issued: Issued) -> str:
    encoding = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    key = issued.key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
    return key.decode() + _pem(issued.certificate)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
