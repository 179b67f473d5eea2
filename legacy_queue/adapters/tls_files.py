"""Where what TLS needs is kept."""

from pathlib import Path
from typing import NamedTuple, Self


class TlsFiles(NamedTuple):
    """PEM files: a server's certificate with its chain, its private key, and what clients verify them by.

    Certificate and key may be in one file.
    """

    certificate: Path
    key: Path
    authority: Path

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """Those that a LocalAuthority makes there."""
        folder = folder.resolve()
        return cls(folder / "server.pem", folder / "server.pem", folder / "ca.pem")
