"""Settings: where they come from, and how wrong values are refused. No error shows a secret."""

import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from legacy_queue.config import GivenSettings, SettingsError, load
from legacy_queue.config.removed_settings import REMOVED
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
tls = "auto"
tls-name = ["a.example.com", "b.example.com"]
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


def given(options: Mapping[str, str], environ: Mapping[str, str] | None = None) -> GivenSettings:
    with CliRunner(env=environ).isolation():
        return load([f"--{name}={value}" for name, value in options.items()])


def why_refused(options: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as error:
        given(options or {}, environ).settings()
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
def test_a_setting_can_come_from_an_option_or_a_variable(name: str, text: str, value: Any) -> None:
    field = name.replace("-", "_")
    for options, environ in (({name: text}, {}), ({}, {variable(name): text, "LEGACY_QUEUE_TEST_X": "x"})):
        found = given(options, environ)
        assert getattr(found.settings(), field) == value
        assert found.sources == {field: f"--{name}" if options else variable(name)}
        assert "S3CRET" not in repr(found.settings()) + repr(found)


def test_a_setting_comes_from_its_option_then_its_variable_then_the_settings_file(
    tmp_path: Path,
) -> None:
    path = file(tmp_path)
    environ = {"LEGACY_QUEUE_PORT": "2", "LEGACY_QUEUE_CONFIG": path}
    assert given({"port": "3"}, environ).settings().port == 3
    assert given({}, environ).settings().port == 2
    found = given({"config": path})
    settings = found.settings()
    assert settings == given({}, {"LEGACY_QUEUE_CONFIG": path}).settings()
    assert (settings.port, settings.claim_timeout) == (1, timedelta(minutes=3))
    assert settings.clients == (Client("a/client", TOKEN, ("queue:*",)),)
    assert settings.roles == {"worker:*": ("queue:poll-task-urls:*",)}
    assert settings.worker_types == {"p/w": "required"}
    assert settings.tls_name == ("a.example.com", "b.example.com")
    assert found.sources["port"] == f"port in {path}, line 2"
    assert found.sources["clients"] == f"clients in {path}, line 9"
    assert found.sources["roles"] == f"roles in {path}, line 13"


def test_repeated_options_and_values_separated_by_commas_are_a_list() -> None:
    names = ["--tls=auto", "--tls-name=a.example.com", "--tls-name=b.example.com,c.example.com"]
    assert load(names).settings().tls_name == ("a.example.com", "b.example.com", "c.example.com")
    environ = {"LEGACY_QUEUE_TLS": "auto", "LEGACY_QUEUE_TLS_NAME": "a.example.com,b.example.com"}
    assert given({}, environ).settings().tls_name == ("a.example.com", "b.example.com")


def test_an_empty_variable_is_refused() -> None:
    """If an empty value meant the default, a value that got lost could allow more than intended."""
    assert "LEGACY_QUEUE_ANONYMOUS_SCOPES is empty" in why_refused(
        environ={"LEGACY_QUEUE_ANONYMOUS_SCOPES": ""}
    )


@pytest.mark.parametrize(
    ("name", "nearest"), [("claim-timeuot", "claim-timeout"), ("development-client", "")]
)
def test_the_error_for_an_unknown_setting_names_the_nearest(tmp_path: Path, name: str, nearest: str) -> None:
    path = file(tmp_path, f'"{name}" = "S3CRET"')
    for message, unknown, other in [
        (why_refused(environ={variable(name): "S3CRET"}), variable(name), variable(nearest)),
        (why_refused({"config": path}), f"{name} in {path}, line 1", nearest),
    ]:
        assert message.startswith(f"there is no setting {unknown}; the nearest is {other}")
    for unknown, other in [
        ("LEGACY_QUEUE_ROOT_URI", "LEGACY_QUEUE_ROOT_URL"),
        ("LEGACY_QUEUE_tls", "LEGACY_QUEUE_TLS"),
    ]:
        assert f"{unknown}; the nearest is {other}" in why_refused(environ={unknown: "S3CRET"})


def test_the_error_names_the_line_of_the_right_table_of_the_settings_file(tmp_path: Path) -> None:
    path = file(tmp_path, '[roles]\nscopes = ["x"]\n[scopes]')
    assert f"scopes in {path}, line 3" in why_refused({"config": path})


def test_the_error_for_a_removed_setting_says_what_to_do_instead(tmp_path: Path) -> None:
    for name, sentence in REMOVED.items():
        path = file(tmp_path, f'"{name}" = "S3CRET"')
        for message, shown in [
            (why_refused(environ={variable(name): "S3CRET"}), variable(name)),
            (why_refused({"config": path}), f"{name} in {path}, line 1"),
        ]:
            assert message == f"{shown} was removed: {sentence}"


def test_a_settings_file_that_is_not_toml_or_is_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    assert f"the settings file {path} cannot be read" in why_refused({"config": str(path)})
    for text in (b"\nport = ", f'\nx = "{KEY}\n'.encode(), b'\na = "\xff"'):
        path.write_bytes(text)
        message = why_refused({"config": str(path)})
        assert message.startswith(f"the settings file {path} is not TOML: ")
        assert "line 2" in message


@pytest.mark.parametrize("name", ["port", "signing-secrets"])
def test_the_error_for_a_bad_value_names_its_source_and_shows_it_unless_it_is_secret(
    tmp_path: Path, name: str
) -> None:
    path = file(tmp_path, f'\n{name} = "b a d"')
    for message, place in [
        (why_refused({name: "b a d"}), f"--{name}"),
        (why_refused(environ={variable(name): "b a d"}), variable(name)),
        (why_refused({"config": path}), f"{name} in {path}, line 2"),
    ]:
        assert message.startswith(place)
        assert ": expected " in message
        assert ("'b a d'" in message) is (name == "port")


SERVED = {"clients": CLIENTS, "signing-secrets": SIGNING}
PUBLIC = {"public-url": "https://queue.example.com"}
POLLED = {"storage": "azurite", "public-queue-url": "https://q.example.com", **PUBLIC}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"storage": "azure"}, "LEGACY_QUEUE_CONNECTION_STRING"),
        ({"connection-string": CONNECTION}, "--storage azure, but storage is embedded"),
        ({"azure-proxy": "http://proxy:3128"}, "azure-proxy works only with --storage azure"),
        ({**ENTRA, "storage": "azure", "connection-string": CONNECTION}, "both name the account"),
        ({**dict([*ENTRA.items()][:2]), "storage": "azure"}, "azure-blob-url"),
        ({"storage": "memory", "workers": "2"}, "--workers 1"),
        ({"control": "true", "workers": "2"}, "--control works only with one server process"),
        ({"host": "192.0.2.1", "storage": "memory", "control": "true", **SERVED}, "leave out --control"),
        ({"host": "0.0.0.0", "storage": "memory", "clients": CLIENTS}, "on 0.0.0.0 other machines"),
        ({"host": "::", "storage": "memory", "signing-secrets": SIGNING}, "on :: other machines"),
        ({"host": "192.0.2.1", **POLLED, **SERVED}, "--public-blob-url"),
        ({"host": "0.0.0.0", "development": "true"}, "clients cannot be sent to 0.0.0.0"),
        ({"tls-cert": "a.pem"}, "need each other"),
        ({"tls": "auto", **OWN_CERTIFICATE}, "exclude each other"),
        ({"tls-name": "queue.example.com"}, "set tls to auto"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(options: dict[str, str], said: str) -> None:
    assert said in why_refused(options)


def test_settings_that_go_together_are_accepted() -> None:
    azure = {"storage": "azure", "connection-string": CONNECTION, "azure-proxy": "http://proxy:3128"}
    given({"host": "::", "workers": "4", **azure, **PUBLIC, **SERVED}).settings()
    given({"host": "192.0.2.1", "storage": "memory", "control": "true", "development": "true"}).settings()
    given({"host": "127.8.9.1", "control": "true"}).settings()


@pytest.mark.parametrize(
    ("options", "environ", "control"),
    [
        ({}, {}, True),
        ({"workers": "2"}, {}, False),
        ({"host": "192.0.2.1", "storage": "memory", "development": "true"}, {}, True),
        ({"control": "false"}, {}, False),
        ({}, {"LEGACY_QUEUE_CONTROL": "no"}, False),
    ],
)
def test_control_is_turned_on_unless_it_was_set_or_another_setting_excludes_it(
    options: dict[str, str], environ: dict[str, str], control: bool
) -> None:
    found = given(options, environ)
    found.turn_on_control()
    assert found.settings().control is control
    assert found.texts == {**options, **({"control": "true"} if control else {})}


@pytest.mark.parametrize(
    ("options", "package", "extra"),
    [
        ({"amqp-url": "amqp://rabbitmq.example.com"}, "kombu", "amqp"),
        ({"storage": "azure", **ENTRA}, "azure.identity", "azure"),
    ],
)
def test_if_a_setting_needs_an_extra_that_is_missing_the_error_has_the_command_that_installs_it(
    options: dict[str, str], package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if the package were not installed
    sentence = f"the package {package}, which is not installed: run `pip install 'legacy-queue[{extra}]'`"
    assert why_refused(options).endswith(sentence)
