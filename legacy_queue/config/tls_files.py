"""The files that TLS needs."""

from pathlib import Path
from typing import NamedTuple, Self


class TlsFiles(NamedTuple):
    """PEM files: a server's certificate with its chain, its private key, and the authority for clients.

    Certificate and key may be in one file.
    """

    certificate: Path
    key: Path
    authority: Path

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """The files of a LocalAuthority in that folder."""
        folder = folder.resolve()
        return cls(folder / "server.pem", folder / "server.pem", folder / "ca.pem")
