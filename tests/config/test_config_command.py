"""``legacy-queue config`` prints the settings in force and their sources, without secrets."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from legacy_queue.cli.commands import commands
from legacy_queue.config import SERVER_FILE
from legacy_queue.config.removed_settings import REMOVED

TOKEN = "S3CRET-access-token-of-a-client"
SIGNING = "S3CRET-that-signs-the-messages"
CLIENTS = f'{{"a/client": {{"accessToken": "{TOKEN}", "scopes": ["queue:*"]}}}}'


def config(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(commands, ["config", *arguments], env=environ)


def shown(*arguments: str, **environ: str) -> dict[str, str]:
    """The line of each setting, by the setting's name."""
    result = config(*arguments, **environ)
    assert result.exit_code == 0, result.output
    assert "S3CRET" not in result.output
    return dict(line.split(" = ", 1) for line in result.output.splitlines() if line[0] != "#")


def test_config_says_which_queue_the_commands_call_and_with_which_client(tmp_path: Path) -> None:
    def called(**environ: str) -> str:
        output = config(LEGACY_QUEUE_DATA_DIR=str(tmp_path), **environ).output
        assert "S3CRET" not in output
        return output.splitlines()[-1].removeprefix("# commands call: ")

    root = {"TASKCLUSTER_ROOT_URL": "https://queue.example.com"}
    assert called(**root).startswith("The queue at https://queue.example.com/api/queue/v1 needs credentials")
    client = {"TASKCLUSTER_CLIENT_ID": "me", "TASKCLUSTER_ACCESS_TOKEN": TOKEN}
    asked = "https://queue.example.com/api/queue/v1 (TASKCLUSTER_ROOT_URL) as me (TASKCLUSTER_CLIENT_ID)"
    assert called(**root, **client) == asked
    masked = asked.replace("//", "//a:***@")
    assert called(TASKCLUSTER_ROOT_URL="https://a:S3CRET@queue.example.com", **client) == masked
    local = {"clientId": "development", "accessToken": TOKEN}
    server = {"rootUrl": "http://127.0.0.1:1", "pid": os.getpid(), "credentials": local}
    (tmp_path / SERVER_FILE).write_text(json.dumps(server))
    assert called() == "http://127.0.0.1:1/api/queue/v1 (server.json) as development (server.json)"


def test_config_masks_secrets_and_names_sources(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("port = 1")
    secrets = f"{SIGNING},{SIGNING}2"
    connection = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=S3CRET==;EndpointSuffix=e.com"
    azure = ("--storage", "azure", "--connection-string", connection)
    broker = "amqp://queue:S3CRET@rabbit.example.com/vhost"
    proxies = ("--trusted-proxy", "10.0.0.0/8", "--trusted-proxy", "127.0.0.1")
    given = ("--signing-secrets", secrets, *azure, *proxies)
    lines = shown("--config", str(path), *given, LEGACY_QUEUE_CLIENTS=CLIENTS, LEGACY_QUEUE_AMQP_URL=broker)
    assert lines["port"] == f"1  # port in {path}, line 1"
    assert lines["trusted-proxy"] == '["10.0.0.0/8", "127.0.0.1/32"]  # --trusted-proxy'
    assert lines["signing-secrets"] == '["***", "***"]  # --signing-secrets'
    assert lines["clients"] == (
        '{"a/client": {"accessToken": "***", "scopes": ["queue:*"]}}  # LEGACY_QUEUE_CLIENTS'
    )
    assert lines["amqp-url"] == f'"{broker.replace("S3CRET", "***")}"  # LEGACY_QUEUE_AMQP_URL'
    assert lines["connection-string"] == f'"{connection.replace("S3CRET==", "***")}"  # --connection-string'


@pytest.mark.parametrize(
    "connection",
    [
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=S3CRETKEY==;EndpointSuffix=core.windows.net",
        "AccountName=a;accountkey=S3CRETKEY==",
        "QueueEndpoint=https://h/;SharedAccessSignature=sv=2018-03-28&sig=S3CRET%3D&se=x",
        "QueueEndpoint=https://h/?sv=1&sig=S3CRET%3D;AccountName=a",
        "S3CRETKEY==;AccountName=a",
        "AccountName=a;BlobEndpoint=https://user:S3CRET;@host/",
    ],
)
def test_the_key_of_a_connection_string_is_masked(connection: str) -> None:
    lines = shown("--storage", "azure", LEGACY_QUEUE_CONNECTION_STRING=connection)
    assert "***" in lines["connection-string"]


def test_an_error_about_a_setting_is_one_sentence_without_secrets() -> None:
    result = config("--public-url", "https://user:S3CRET@h/")
    [line] = result.output.splitlines()
    assert line.startswith("Error: --public-url is 'https://user:***@h/': expected a URL ")
    assert result.exit_code == 1


def test_the_error_for_a_removed_option_says_what_to_do_instead() -> None:
    for name, sentence in REMOVED.items():
        assert config(f"--{name}").output == f"Error: --{name} was removed: {sentence}\n"
