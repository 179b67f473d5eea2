"""Runs commands in the process of the test, against a real server."""

import json
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner, Result

from legacy_queue.cli.commands import commands
from tests.system.processes import Server, client_env

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"

Asking = Callable[..., Result]


def asking(server: Server) -> Asking:
    """A function that runs ``legacy-queue`` with these words, and this environment."""

    def ask(*words: str, **env: str) -> Result:
        return CliRunner().invoke(commands, words, env=client_env(server.root_url, server.credentials) | env)

    return ask


def printed(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.output


def from_json(result: Result) -> Any:
    return json.loads(printed(result))
