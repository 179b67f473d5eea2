"""A certificate authority in a folder, and the server certificate that it signs.

Name constraints limit the authority to its DNS names. It can sign for any IP address: if an authority
constrains addresses, OpenSSL 1.0.2, and so Node.js 6 to 8, refuses its certificates for addresses
("unsupported name constraint type"). Keys are EC P-256, which TLS libraries of 2016 accept. Source: RFC 5280,
4.2.1.10.
"""

import ipaddress
import math
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from legacy_queue.config import AUTHORITY_FILE
from legacy_queue.config.certificate_names import names_in
from legacy_queue.private_folder import lock_private, read_private, write_private

log = structlog.get_logger()

ALWAYS = ("localhost", "127.0.0.1", "::1")  # every certificate names these
_AUTHORITY_LIFE = timedelta(days=3652)
_SERVER_LIFE = timedelta(days=90)
_RENEWED_BEFORE_EXPIRY = timedelta(days=30)
_BACKDATED = timedelta(days=1)  # for clients whose clock is behind
_AUTHORITY_NAME = "legacy-queue local authority"


class Issued(NamedTuple):
    """A certificate and its private key."""

    key: Any
    certificate: x509.Certificate

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read them from a file; None if it is missing. Raises OSError, and ValueError if it is damaged."""
        try:
            text = read_private(path)
            return cls(serialization.load_pem_private_key(text, None), x509.load_pem_x509_certificate(text))
        except FileNotFoundError:
            return None
        except ValueError:
            raise ValueError(f"{path} is damaged: remove it") from None

    def public_pem(self) -> str:
        """The certificate in PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def private_pem(self) -> str:
        """The key and the certificate in PEM."""
        encoding = serialization.Encoding.PEM
        plain = serialization.NoEncryption()
        key: bytes = self.key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
        return key.decode() + self.public_pem()


class LocalAuthority:
    """The files of the folder. ``names`` are DNS names and IP addresses in addition to ``ALWAYS``.

    ``certificate`` is the certificate of the authority, for clients. ``bundle`` contains it and the
    authorities that requests trusts. ``server`` has the server's private key and certificate in one file, so
    that both are replaced atomically.
    """

    def __init__(self, folder: Path, names: Sequence[str] = ()) -> None:
        self._folder = folder.resolve()
        self._names = tuple(dict.fromkeys((*ALWAYS, *names)))
        self.server = self._folder / "server.pem"
        self.certificate = self._folder / "ca.pem"
        self.bundle = self._folder / "bundle.pem"
        self._authority = self._folder / AUTHORITY_FILE

    def ensure(self, now: datetime) -> None:
        """Create or renew the files, so that they cover all ``names`` for another month.

        If several processes call this at once, one of them does the work. If the authority lacks a DNS name,
        or expires within 90 days, it is replaced by an authority for the old and the new names, and clients
        must trust the new one. It keeps the old names so that two servers with different names do not replace
        each other's authority again and again. Raises OSError, and ValueError for a damaged file.
        """
        with open(lock_private(self._folder / "lock", math.inf)):
            self._ensure(now)

    def _ensure(self, now: datetime) -> None:
        authority = self._good_authority(now)
        server = Issued.read(self.server)
        served = names_in(self.server) if server else ()
        is_kept = (
            server
            and server.certificate.issuer == authority.certificate.subject  # each authority has a unique name
            and server.certificate.not_valid_after_utc > now + _RENEWED_BEFORE_EXPIRY
        )
        if not is_kept or not set(self._names) <= set(served):
            names = tuple(dict.fromkeys((*self._names, *served)))
            self._write(self.server, issue_server(authority, names, now).private_pem())
            log.info("tls-certificate-made", names=names)
        public = authority.public_pem()
        self._write(self.certificate, public)
        self._write(self.bundle, f"{Path(DEFAULT_CA_BUNDLE_PATH).read_text()}\n{public}")

    def _good_authority(self, now: datetime) -> Issued:
        old = Issued.read(self._authority)
        permitted = _permitted(old.certificate) if old else ()
        wanted = [name for name in self._names if isinstance(_general_name(name), x509.DNSName)]
        is_long = old is not None and old.certificate.not_valid_after_utc > now + _SERVER_LIFE
        if old and is_long and set(wanted) <= set(permitted):
            return old
        names = tuple(dict.fromkeys((*wanted, *permitted)))
        issued = _authority(names, now)
        self._write(self._authority, issued.private_pem())
        log.warning(
            "tls-authority-replaced" if old else "tls-authority-made",
            path=str(self.certificate),
            names=names,
            **({"hint": "every client must trust the new authority: see legacy-queue ca"} if old else {}),
        )
        return issued

    def _write(self, path: Path, text: str) -> None:
        """Replace the file atomically, unless it has this text already."""
        if not path.is_file() or path.read_bytes() != text.encode():
            write_private(path, text)


def _permitted(authority: x509.Certificate) -> tuple[str, ...]:
    """Returns the DNS names that the authority can sign for."""
    constraints = authority.extensions.get_extension_for_class(x509.NameConstraints).value
    return tuple(name.value for name in constraints.permitted_subtrees or ())


def _authority(names: Sequence[str], now: datetime) -> Issued:
    name = f"{_AUTHORITY_NAME} {os.urandom(4).hex()}"  # OpenSSL looks an issuer up by its name
    return _issue(name, None, now, x509.NameConstraints([x509.DNSName(name) for name in names], None))


def issue_server(authority: Issued, names: Sequence[str], now: datetime) -> Issued:
    """Returns a new key and certificate for the server, signed by the authority."""
    return _issue(
        names[0],
        authority,
        now,
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectAlternativeName([_general_name(name) for name in names]),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
    )


def _issue(name: str, issuer: Issued | None, now: datetime, *extensions: x509.ExtensionType) -> Issued:
    """Returns a new key and its certificate with these extensions. Without an issuer, it is an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    is_authority = issuer is None
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + (_AUTHORITY_LIFE if is_authority else _SERVER_LIFE))
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return Issued(key, builder.sign(issuer.key if issuer else key, hashes.SHA256()))


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
