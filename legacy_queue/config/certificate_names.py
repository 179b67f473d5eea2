"""The names that a certificate is valid for."""

from pathlib import Path


def names_in(path: Path) -> tuple[str, ...]:
    """The DNS names and IP addresses of the first certificate in a file.

    Raises OSError, and ValueError for a file without a certificate.
    """
    from cryptography import x509  # imported here because it takes long, and most servers have no certificate

    if not path.is_file():  # a pipe would block
        raise ValueError(f"{path} is not a file")
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress))
