"""A real S3 server that checks signatures: ministack, in its own process."""

import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import requests

from tests.guard import MARK

REGION = "eu-west-1"


class S3Server:
    """S3 on loopback, with one account, while the context lasts; what it stores is in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.access_key_id = f"AKIA{secrets.token_hex(8).upper()}"
        self.secret_access_key = f"S3CRET-{secrets.token_hex(16)}"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        environ = {
            **{name: os.environ[name] for name in ("PATH", MARK)},
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory),
            "AUTH": "true",
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self._port),
            "MINISTACK_HOST": "127.0.0.1",
            "MINISTACK_REGION": REGION,
            "SERVICES": "s3",
        }
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ministack"], env=environ, cwd=self.directory, stdout=log, stderr=log
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(30)

    def _wait(self) -> None:
        given_up = time.monotonic() + 60
        while time.monotonic() < given_up and self._process.poll() is None:
            try:
                requests.get(self.endpoint, timeout=5)
            except requests.ConnectionError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"ministack did not start: {(self.directory / 'log').read_text()[-2000:]}")
