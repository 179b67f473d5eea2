"""Azurite over https at localhost, which Microsoft Entra ID needs, and a token that Azurite accepts."""

import base64
import json
import time
from pathlib import Path
from typing import Any

from azure.core.credentials import AccessToken

from legacy_queue.adapters.azure.access import Access
from legacy_queue.local_processes.azurite import ACCOUNT, Azurite, Ports

SECRET = "never-shown"


class SecureAzurite(Azurite):
    """An Azurite over https. ``certificate`` is a file that also has the key."""

    def __init__(self, data_dir: Path, certificate: Path) -> None:
        self._certificate = certificate
        super().__init__(data_dir)

    def access(self, credential: Any) -> Access:
        ports = self.ports.queue, self.ports.table, self.ports.blob
        return Access(ACCOUNT, [f"https://localhost:{port}/{ACCOUNT}" for port in ports], credential)

    def _command(self, ports: Ports) -> tuple[list[str], dict[str, str]]:
        command, environment = super()._command(ports)
        files = [f"--{name}={self._certificate}" for name in ("cert", "key")]
        return [*command, "--oauth", "basic", *files], environment


class StaticCredential:
    """Gives tokens like those of Microsoft Entra ID, but without a signature."""

    def get_token(self, *_scopes: str, **_options: Any) -> AccessToken:
        now = int(time.time())
        claims = {
            "aud": "https://storage.azure.com",
            "iss": "https://sts.windows.net/tenant/",
            "iat": now - 60,
            "nbf": now - 60,
            "exp": now + 3600,
            "oid": "an-object-id",
            "tid": "a-tenant-id",
        }
        parts = ({"typ": "JWT", "alg": "none"}, claims)
        texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
        return AccessToken(".".join([*texts, SECRET]), now + 3600)
