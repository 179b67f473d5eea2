"""Settings: their sources, the refusal of wrong values, and secrets that no error repeats."""

import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.config import Settings, SettingsError, load
from legacy_queue.config.settings import DECLARED, wire_name
from legacy_queue.domain.authentication import Client

TOKEN = "S3CRET-access-token-of-a-client"
SIGNING = "S3CRET-that-signs-the-messages"
KEY = "S3CRETKEY=="
CLIENTS = f'{{"a/client": {{"accessToken": "{TOKEN}", "scopes": ["*"]}}}}'
CONNECTION = f"AccountName=a;AccountKey={KEY};EndpointSuffix=core.windows.net"
AMQP = "amqps://queue:S3CRET%2F@rabbit.example.com:5671/vhost"
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

S3 = {
    "s3-endpoint": "https://s3.example.com",
    "s3-bucket": "the-bucket",
    "s3-region": "eu-west-1",
    "s3-access-key-id": "AKIAEXAMPLE",
    "s3-secret-access-key": "S3CRET-for-presigned-urls",
}
ENTRA = {
    f"azure-{name}-url": f"https://acc.{name}.core.chinacloudapi.cn" for name in ("queue", "table", "blob")
}
ANY_TEXT = ("host", "data-dir", "azurite-dir", "connection-string", "tls-cert", "tls-key")
OWN_CERTIFICATE = {"tls-cert": "a.pem", "tls-key": "b.pem"}
NEEDED_TOGETHER = [name for name in S3 if name != "s3-region"]

# for each setting: its text, and the parsed value
EACH: dict[str, tuple[str, Any]] = {
    "host": ("::1", "::1"),
    "port": ("0", 0),
    "workers": ("3", 3),
    "storage": ("memory", "memory"),
    "synchronous": ("full", "full"),
    "data-dir": ("/somewhere", Path("/somewhere")),
    "azurite-dir": ("elsewhere", Path("elsewhere")),
    "azurite-default-account": ("true", True),
    "connection-string": (CONNECTION, CONNECTION),
    **{name: (f"{url}/", url) for name, url in ENTRA.items()},
    "azure-account": ("acc", "acc"),
    "azure-proxy": ("http://proxy:3128", "http://proxy:3128"),
    "queue-prefix": ("q2", "q2"),
    "public-url": ("https://queue.example.com/", "https://queue.example.com"),
    "public-queue-url": ("http://127.0.0.1:10001/account", "http://127.0.0.1:10001/account"),
    "public-blob-url": ("http://127.0.0.1:10000/account", "http://127.0.0.1:10000/account"),
    "tls": ("auto", "auto"),
    "tls-name": ("queue.example.com,10.0.0.1", ("queue.example.com", "10.0.0.1")),
    "tls-cert": ("a.pem", Path("a.pem")),
    "tls-key": ("b.pem", Path("b.pem")),
    "allowed-hosts": ("Queue.example.com,*,*.B.c", ("queue.example.com", "*", "*.b.c")),
    "cors-origins": ("https://a.example.com,http://[::1]:81", ("https://a.example.com", "http://[::1]:81")),
    "trusted-proxy": ("true", True),
    "claim-timeout": ("6s", timedelta(seconds=6)),
    "poll-visibility": ("1m", timedelta(minutes=1)),
    "sas-life": ("1h", timedelta(hours=1)),
    "clients": (CLIENTS, (Client("a/client", TOKEN, ("*",)),)),
    "roles": ('{"a": ["b"]}', {"a": ("b",)}),
    "signing-secrets": (f"{SIGNING},{TOKEN}", (SIGNING, TOKEN)),
    "worker-types": ('{"p/w": "optional"}', {"p/w": "optional"}),
    "amqp-url": (AMQP, AMQP),
    "project": ("my-project_2", "my-project_2"),
    "answer-shape": ("2018", "2018"),
    "event-shape": ("today", "today"),
    "claim-work-wait": ("5s", timedelta(seconds=5)),
    **{name: (value, value) for name, value in S3.items()},
    "resolvers": ("false", False),
    "log-format": ("text", "text"),
    "log-level": ("warning", "warning"),
    "legacy-stubs": ("true", True),
    "control": ("true", True),
    "development": ("true", True),
}


def variable(name: str) -> str:
    return f"LEGACY_QUEUE_{name.replace('-', '_').upper()}"


def needed_with(name: str) -> dict[str, str]:
    with_others = {"connection-string": {"storage": "azure"}, "tls-name": {"tls": "auto"}}
    for of_entra in (*ENTRA, "azure-account", "azure-proxy"):
        with_others[of_entra] = {"storage": "azure", **ENTRA}
    with_others |= dict.fromkeys(S3, S3) | dict.fromkeys(OWN_CERTIFICATE, OWN_CERTIFICATE)
    return {other: value for other, value in with_others.get(name, {}).items() if other != name}


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


def test_each_setting_has_a_test_case() -> None:
    assert list(EACH) == [wire_name(setting.name) for setting in DECLARED]


def test_the_defaults_are_the_documented_values() -> None:
    settings, sources = load({}, {})
    assert settings == Settings()
    assert set(sources.values()) == {"default"}
    assert (settings.host, settings.storage, settings.workers) == ("127.0.0.1", "embedded", 1)
    assert settings.claim_timeout == timedelta(minutes=20)
    assert settings.poll_visibility == timedelta(minutes=5)
    assert settings.sas_life == timedelta(minutes=30)
    assert settings.data_dir == Path(".legacy-queue")
    assert settings.trusted_proxy is False
    assert (settings.amqp_url, settings.project, settings.resolvers) == (None, "taskcluster-queue", True)
    assert (settings.clients, settings.signing_secrets, dict(settings.worker_types)) == ((), (), {})


@pytest.mark.parametrize("name", EACH)
def test_each_setting_is_read_from_an_option_and_a_variable(name: str) -> None:
    text, value = EACH[name]
    for options, environ in (({name: text}, {}), ({name: None}, {variable(name): text, "PATH": "x"})):
        settings, sources = load({**needed_with(name), **options}, environ)
        assert getattr(settings, name.replace("-", "_")) == value
        assert sources[name] == (variable(name) if environ else f"--{name}")
        assert "S3CRET" not in repr(settings) + repr(sources)


def test_settings_are_read_from_the_file(tmp_path: Path) -> None:
    path = file(tmp_path)
    for settings, sources in (load({"config": path}, {}), load({}, {"LEGACY_QUEUE_CONFIG": path})):
        assert settings.port == 1
        assert settings.claim_timeout == timedelta(minutes=3)
        assert settings.clients == (Client("a/client", TOKEN, ("queue:*",)),)
        assert settings.roles == {"worker:*": ("queue:poll-task-urls:*",)}
        assert settings.signing_secrets == (SIGNING,)
        assert settings.worker_types == {"p/w": "required"}
        assert sources["port"] == f"port in {path}"
        assert sources["host"] == "default"


def test_an_option_wins_over_a_variable_and_a_variable_over_the_file(tmp_path: Path) -> None:
    path = file(tmp_path)
    environ = {"LEGACY_QUEUE_PORT": "2", "LEGACY_QUEUE_CONFIG": path}
    assert load({"port": "3"}, environ)[0].port == 3
    assert load({"port": None}, environ)[0].port == 2
    assert load({}, {"LEGACY_QUEUE_CONFIG": path})[0].port == 1
    assert load({}, {})[0].port == 8080


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("claim-timeuot", "claim-timeout"),
        ("client", "clients"),
        ("zzz", ""),
        ("development-client", ""),
        ("root-urls", ""),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(tmp_path: Path, name: str, nearest: str) -> None:
    message = why_refused(environ={variable(name): "S3CRET"})
    assert f"there is no setting {variable(name)}" in message
    assert f"the nearest is {variable(nearest)}" in message
    message = why_refused({"config": file(tmp_path, f'"{name}" = "S3CRET"')})
    assert f"there is no setting {name}" in message
    assert f"the nearest is {nearest}" in message


def test_variables_that_are_no_settings_are_ignored() -> None:
    load(
        {},
        {"LEGACY_QUEUE_ROOT_URL": "x", "LEGACY_QUEUE_BASE_URL": "x", "LEGACY_QUEUE_TEST_X": "x", "PORT": "x"},
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [(b"port = ", "is not TOML"), (f'x = "{KEY}'.encode(), "is not TOML"), (b'a = "\xff"', "is not TOML")],
)
def test_a_file_that_is_not_toml_or_is_missing_is_refused(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "settings.toml"
    assert f"the settings file {path} cannot be read" in why_refused({"config": str(path)})
    path.write_bytes(text)
    assert f"the settings file {path} {said}" in why_refused({"config": str(path)})


@pytest.mark.parametrize("name", EACH)
def test_a_bad_value_is_refused_with_its_source(tmp_path: Path, name: str) -> None:
    secret = next(field.metadata["secret"] for field in DECLARED if wire_name(field.name) == name)
    bad = "" if name in ANY_TEXT else "b a d"
    for message, place in [
        (why_refused({name: bad}), f"--{name}"),
        (why_refused(environ={variable(name): bad}), variable(name)),
        (why_refused({"config": (path := file(tmp_path, f'{name} = "{bad}"'))}), f"{name} in {path}"),
    ]:
        assert message.startswith(place)
        assert "accepted" in message
        assert (repr(bad) in message) is not secret


AZURITE = {"storage": "azurite"}
SERVED = {"clients": CLIENTS, "signing-secrets": SIGNING}
PUBLIC = {"public-url": "https://queue.example.com"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"storage": "azure"}, "LEGACY_QUEUE_CONNECTION_STRING"),
        ({"connection-string": CONNECTION}, "--storage azure, and this is embedded"),
        ({"azure-proxy": "http://proxy:3128"}, "azure-proxy goes with --storage azure"),
        ({**ENTRA, "storage": "azure", "connection-string": CONNECTION}, "and so does azure-queue-url"),
        (
            {"storage": "azure", "connection-string": CONNECTION, "azure-account": "acc"},
            "and so does azure-account",
        ),
        ({**dict([*ENTRA.items()][:2]), "storage": "azure"}, "azure-blob-url"),
        ({"storage": "memory", "workers": "2"}, "--workers 1"),
        ({"control": "true", "workers": "2"}, "--control goes with one server process"),
        ({"host": "192.0.2.1", "storage": "memory", "control": "true", **SERVED}, "leave out --control"),
        ({"host": "0.0.0.0", "storage": "memory"}, "configure clients and signing-secrets"),
        ({"host": "0.0.0.0", "storage": "memory", "clients": CLIENTS}, "on 0.0.0.0 others"),
        ({"host": "::", "storage": "memory", "signing-secrets": SIGNING}, "on :: others"),
        ({"host": "192.0.2.1", **AZURITE, **SERVED}, "--public-queue-url"),
        ({"host": "0.0.0.0", "development": "true"}, "0.0.0.0 is no address that clients could be sent to"),
        ({"host": "0:0::0", "storage": "memory", **SERVED}, "0:0::0 is no address"),
        (
            {"host": "0.0.0.0", "public-queue-url": "https://q.example.com", **AZURITE, **PUBLIC, **SERVED},
            "--public-blob-url",
        ),
        ({"tls-cert": "a.pem"}, "go together"),
        ({"tls": "auto", **OWN_CERTIFICATE}, "give one of them"),
        ({"tls-name": "queue.example.com"}, "set tls to auto"),
        *(({name: S3[name] for name in S3 if name != left_out}, left_out) for left_out in NEEDED_TOGETHER),
    ],
)
def test_settings_that_do_not_go_together_are_refused(options: dict[str, str], said: str) -> None:
    assert said in why_refused(options)


def test_settings_that_go_together_are_accepted() -> None:
    azure = {"storage": "azure", "connection-string": CONNECTION, "azure-proxy": "http://proxy:3128"}
    load({"host": "::", "workers": "4", **azure, **PUBLIC, **SERVED}, {})
    load({"host": "192.0.2.1", "storage": "memory", "control": "true", "development": "true"}, {})
    load({"host": "127.8.9.1", "control": "true"}, {})
    load({name: S3[name] for name in NEEDED_TOGETHER}, {})


@pytest.mark.parametrize(
    ("options", "package", "extra"),
    [
        ({"amqp-url": "amqp://rabbitmq.example.com"}, "kombu", "amqp"),
        ({"storage": "azure", **ENTRA}, "azure.identity", "azure"),
        (S3, "boto3", "s3"),
    ],
)
def test_a_setting_that_lacks_its_extra_is_refused_with_the_command_that_brings_it(
    options: dict[str, str], package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    sentence = f"{package} is needed, and not installed: `pip install 'legacy-queue[{extra}]'` brings it"
    assert why_refused(options).endswith(sentence)
