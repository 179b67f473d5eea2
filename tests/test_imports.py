"""A process imports large packages only when it uses them, because each takes time and megabytes."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

BUILD = """
import legacy_queue.server.serve, sys
from legacy_queue.config import Settings
from legacy_queue.wiring import build
build(Settings(storage="memory", signing_secrets=("a secret",)), "http://localhost")
"""
READS = """
import sys
sys.addaudithook(lambda event, args: event == "open" and "entry_points" in str(args[0]) and print(args[0]))
"""
HELP = """
from legacy_queue.cli.command_table import COMMANDS
from legacy_queue.cli.commands import commands
for name in COMMANDS.keys() - {"ca"}:  # the help of ca imports cryptography
    commands([name, "--help"], standalone_mode=False)
"""
NOT_OF_EMBEDDED = ("azure", "boto3", "cryptography", "kombu", "requests", "urllib3")


def imported(*words: str) -> set[str]:
    """The packages that Python imports when it is called with these words."""
    command = [sys.executable, "-X", "importtime", *words]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in output.splitlines()}


def test_a_server_with_embedded_storage_imports_no_azure_sdk_and_no_http_client() -> None:
    packages = imported("-c", BUILD)
    assert {"flask", "gevent", "gunicorn"} <= packages
    assert packages.isdisjoint(NOT_OF_EMBEDDED)


def test_help_does_not_import_the_server() -> None:
    server = {"flask", "gevent", "gunicorn"}
    assert imported("-c", HELP).isdisjoint({*server, "azure", "kombu"})
    assert imported("-m", "legacy_queue", "serve", "--help").isdisjoint({*server, *NOT_OF_EMBEDDED})


def test_a_server_reads_the_entry_points_of_each_package_once() -> None:
    command = [sys.executable, "-c", READS + BUILD]
    files = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert files
    assert len(set(files)) == len(files)
