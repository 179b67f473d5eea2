"""Settings: their sources, the refusal of wrong values, and secrets that no error repeats."""

import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.config import SettingsError, load
from legacy_queue.config.removed import REMOVED
from legacy_queue.domain.authentication import Client

TOKEN = "S3CRET-access-token-of-a-client"
SIGNING = "S3CRET-that-signs-the-messages"
KEY = "S3CRETKEY=="
CLIENTS = f'{{"a/client": {{"accessToken": "{TOKEN}", "scopes": ["*"]}}}}'
CONNECTION = f"AccountName=a;AccountKey={KEY};EndpointSuffix=core.windows.net"
FILE = f"""
port = 1
claim-timeout = "3m"
storage = "memory"
signing-secrets = ["{SIGNING}"]

[clients."a/client"]
accessToken = "{TOKEN}"
scopes = ["queue:*"]

[roles]
"worker:*" = ["queue:poll-task-urls:*"]

[worker-types]
"p/w" = "required"
"""

ENTRA = {
    f"azure-{name}-url": f"https://acc.{name}.core.chinacloudapi.cn" for name in ("queue", "table", "blob")
}
OWN_CERTIFICATE = {"tls-cert": "a.pem", "tls-key": "b.pem"}


def variable(name: str) -> str:
    return f"LEGACY_QUEUE_{name.replace('-', '_').upper()}"


def file(tmp_path: Path, text: str = FILE) -> str:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    return str(path)


def why_refused(options: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as error:
        load(options or {}, environ or {})
    message = str(error.value)
    assert "S3CRET" not in message
    assert "S3CRET" not in repr(error.value.__cause__)
    return message


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "0", 0),
        ("claim-work-wait", "5s", timedelta(seconds=5)),
        ("clients", CLIENTS, (Client("a/client", TOKEN, ("*",)),)),
        ("amqp-url", "amqp://queue:S3CRET@rabbit", "amqp://queue:S3CRET@rabbit"),
    ],
)
def test_a_setting_is_read_from_an_option_and_a_variable(name: str, text: str, value: Any) -> None:
    for options, environ in (({name: text}, {}), ({name: None}, {variable(name): text, "PATH": "x"})):
        settings, sources = load(options, environ)
        assert getattr(settings, name.replace("-", "_")) == value
        assert sources[name] == (variable(name) if environ else f"--{name}")
        assert "S3CRET" not in repr(settings) + repr(sources)


def test_settings_are_read_from_the_file_where_neither_an_option_nor_a_variable_has_them(
    tmp_path: Path,
) -> None:
    path = file(tmp_path)
    environ = {"LEGACY_QUEUE_PORT": "2", "LEGACY_QUEUE_CONFIG": path}
    assert load({"port": "3"}, environ)[0].port == 3
    assert load({"port": None}, environ)[0].port == 2
    settings, sources = load({"config": path}, {})
    assert settings == load({}, {"LEGACY_QUEUE_CONFIG": path})[0]
    assert (settings.port, settings.claim_timeout) == (1, timedelta(minutes=3))
    assert settings.clients == (Client("a/client", TOKEN, ("queue:*",)),)
    assert settings.roles == {"worker:*": ("queue:poll-task-urls:*",)}
    assert settings.worker_types == {"p/w": "required"}
    assert (sources["port"], sources["host"]) == (f"port in {path}", "default")


@pytest.mark.parametrize(
    ("name", "nearest"), [("claim-timeuot", "claim-timeout"), ("development-client", "")]
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(tmp_path: Path, name: str, nearest: str) -> None:
    for message, unknown, other in [
        (why_refused(environ={variable(name): "S3CRET"}), variable(name), variable(nearest)),
        (why_refused({"config": file(tmp_path, f'"{name}" = "S3CRET"')}), name, nearest),
    ]:
        assert f"there is no setting {unknown}" in message
        assert f"the nearest is {other}" in message
    assert "the nearest is LEGACY_QUEUE_ROOT_URL" in why_refused(environ={"LEGACY_QUEUE_ROOT_URI": "S3CRET"})


def test_a_removed_setting_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    for name, sentence in REMOVED.items():
        for message, shown in [
            (why_refused({name: "S3CRET"}), f"--{name}"),
            (why_refused(environ={variable(name): "S3CRET"}), variable(name)),
            (why_refused({"config": file(tmp_path, f'"{name}" = "S3CRET"')}), name),
        ]:
            assert message == f"{shown} was removed: {sentence}"


def test_a_file_that_is_not_toml_or_is_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    assert f"the settings file {path} cannot be read" in why_refused({"config": str(path)})
    for text in (b"port = ", f'x = "{KEY}'.encode(), b'a = "\xff"'):
        path.write_bytes(text)
        assert f"the settings file {path} is not TOML" in why_refused({"config": str(path)})


@pytest.mark.parametrize("name", ["port", "signing-secrets"])
def test_a_bad_value_is_refused_with_its_source_and_shown_if_it_is_no_secret(
    tmp_path: Path, name: str
) -> None:
    for message, place in [
        (why_refused({name: "b a d"}), f"--{name}"),
        (why_refused(environ={variable(name): "b a d"}), variable(name)),
        (why_refused({"config": (path := file(tmp_path, f'{name} = "b a d"'))}), f"{name} in {path}"),
    ]:
        assert message.startswith(place)
        assert "accepted" in message
        assert ("'b a d'" in message) is (name == "port")


SERVED = {"clients": CLIENTS, "signing-secrets": SIGNING}
PUBLIC = {"public-url": "https://queue.example.com"}
POLLED = {"storage": "azurite", "public-queue-url": "https://q.example.com", **PUBLIC}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"storage": "azure"}, "LEGACY_QUEUE_CONNECTION_STRING"),
        ({"connection-string": CONNECTION}, "--storage azure, and this is embedded"),
        ({"azure-proxy": "http://proxy:3128"}, "azure-proxy goes with --storage azure"),
        ({**ENTRA, "storage": "azure", "connection-string": CONNECTION}, "and so does azure-queue-url"),
        ({**dict([*ENTRA.items()][:2]), "storage": "azure"}, "azure-blob-url"),
        ({"storage": "memory", "workers": "2"}, "--workers 1"),
        ({"control": "true", "workers": "2"}, "--control goes with one server process"),
        ({"host": "192.0.2.1", "storage": "memory", "control": "true", **SERVED}, "leave out --control"),
        ({"host": "0.0.0.0", "storage": "memory", "clients": CLIENTS}, "on 0.0.0.0 others"),
        ({"host": "::", "storage": "memory", "signing-secrets": SIGNING}, "on :: others"),
        ({"host": "192.0.2.1", **POLLED, **SERVED}, "--public-blob-url"),
        ({"host": "0.0.0.0", "development": "true"}, "0.0.0.0 is no address that clients could be sent to"),
        ({"tls-cert": "a.pem"}, "go together"),
        ({"tls": "auto", **OWN_CERTIFICATE}, "give one of them"),
        ({"tls-name": "queue.example.com"}, "set tls to auto"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(options: dict[str, str], said: str) -> None:
    assert said in why_refused(options)


def test_settings_that_go_together_are_accepted() -> None:
    azure = {"storage": "azure", "connection-string": CONNECTION, "azure-proxy": "http://proxy:3128"}
    load({"host": "::", "workers": "4", **azure, **PUBLIC, **SERVED}, {})
    load({"host": "192.0.2.1", "storage": "memory", "control": "true", "development": "true"}, {})
    load({"host": "127.8.9.1", "control": "true"}, {})


@pytest.mark.parametrize(
    ("options", "package", "extra"),
    [
        ({"amqp-url": "amqp://rabbitmq.example.com"}, "kombu", "amqp"),
        ({"storage": "azure", **ENTRA}, "azure.identity", "azure"),
    ],
)
def test_a_setting_that_lacks_its_extra_is_refused_with_the_command_that_brings_it(
    options: dict[str, str], package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    sentence = f"{package} is needed, and not installed: `pip install 'legacy-queue[{extra}]'` brings it"
    assert why_refused(options).endswith(sentence)
