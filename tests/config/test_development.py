"""The development client and secret: generated once, stored privately, and never used on another address."""

import json
import os
import stat
from pathlib import Path

import pytest

from legacy_queue.config import Settings, SettingsError, complete
from legacy_queue.domain.authentication import Client

CLIENT = Client("a/client", "an-access-token-of-some-length", ("*",))
SECRET = "a-signing-secret-of-some-length"


def development_file(data_dir: Path) -> Path:
    return data_dir / "development.json"


@pytest.fixture(params=["azurite", "azure"])
def settings(tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    return Settings(storage=request.param, data_dir=tmp_path / "a" / "b")


def test_a_client_and_a_secret_are_generated(settings: Settings) -> None:
    made = complete(settings)
    (client,) = made.clients
    (secret,) = made.signing_secrets
    assert client.client_id == made.development_client == "development"
    assert client.scopes == ("*",)
    assert len(client.access_token) >= 43
    assert len(secret) >= 43
    assert client.access_token != secret
    assert secret not in repr(made)
    assert client.access_token not in repr(made)


def test_the_file_is_private_to_its_owner(settings: Settings) -> None:
    complete(settings)
    assert stat.S_IMODE(development_file(settings.data_dir).stat().st_mode) == 0o600


def test_the_directory_and_a_file_of_an_earlier_version_are_made_private(
    settings: Settings,
) -> None:
    settings.data_dir.mkdir(parents=True, mode=0o755)
    other = settings.data_dir / "not-ours"
    for path in (development_file(settings.data_dir), other):
        path.write_text(json.dumps({"accessToken": "a" * 44, "signingSecret": "b" * 44}))
        path.chmod(0o644)
    complete(settings)
    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(development_file(settings.data_dir).stat().st_mode) == 0o600
    assert stat.S_IMODE(other.stat().st_mode) == 0o644, "other files keep their mode"


def test_the_data_directory_of_azurite_is_private_although_clients_and_secrets_are_configured(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "parent" / "data"
    complete(Settings(clients=(CLIENT,), signing_secrets=(SECRET,), data_dir=data_dir))
    for folder in (data_dir, data_dir.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_directory_that_all_may_write_to_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    complete(Settings(data_dir=tmp_path))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777


def test_a_restart_keeps_the_generated_credentials(settings: Settings) -> None:
    assert complete(settings) == complete(settings)


def test_two_data_directories_have_different_credentials(tmp_path: Path) -> None:
    made = [complete(Settings(data_dir=tmp_path / name)) for name in "ab"]
    assert made[0].clients != made[1].clients
    assert made[0].signing_secrets != made[1].signing_secrets


def test_memory_storage_leaves_no_file(tmp_path: Path) -> None:
    settings = Settings(storage="memory", data_dir=tmp_path)
    assert complete(settings) != complete(settings)
    assert list(tmp_path.iterdir()) == []


def test_configured_clients_and_secrets_are_kept(tmp_path: Path) -> None:
    configured = Settings(clients=(CLIENT,), signing_secrets=(SECRET,), data_dir=tmp_path)
    assert complete(configured) is configured
    assert list(tmp_path.iterdir()) == []


def test_with_configured_clients_there_is_no_development_client(tmp_path: Path) -> None:
    made = complete(Settings(clients=(CLIENT,), data_dir=tmp_path))
    assert made.clients == (CLIENT,)
    assert made.development_client is None
    assert len(made.signing_secrets) == 1


def test_a_configured_secret_is_kept_beside_a_generated_client(tmp_path: Path) -> None:
    made = complete(Settings(signing_secrets=(SECRET,), data_dir=tmp_path))
    assert made.signing_secrets == (SECRET,)
    assert made.development_client == "development"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "[]",
        "null",
        '"accessToken"',
        '{"accessToken": "an-access-token-of-some-length"}',
        '{"accessToken": null, "signingSecret": null}',
        '{"accessToken": "", "signingSecret": ""}',
        '{"accessToken": "short", "signingSecret": "a-signing-secret-of-some-length"}',
        '{"accessToken": ["an-access-token-of-some-length"], "signingSecret": {}}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_a_damaged_file_is_refused_and_left_as_it_is(settings: Settings, text: str) -> None:
    settings.data_dir.mkdir(parents=True)
    development_file(settings.data_dir).write_text(text)
    with pytest.raises(SettingsError) as error:
        complete(settings)
    assert str(error.value).startswith(f"{development_file(settings.data_dir)} is damaged: remove it")
    assert development_file(settings.data_dir).read_text() == text


def test_a_file_that_is_not_text_is_refused(settings: Settings) -> None:
    settings.data_dir.mkdir(parents=True)
    development_file(settings.data_dir).write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="is damaged"):
        complete(settings)


def test_a_file_of_another_user_is_refused(settings: Settings) -> None:
    settings.data_dir.mkdir(parents=True)
    path = development_file(settings.data_dir)
    if os.geteuid() == 0:
        path.write_text(json.dumps({"accessToken": "a" * 44, "signingSecret": "b" * 44}))
        os.chown(path, 12345, 12345)
    else:
        path.symlink_to("/etc/passwd")
    with pytest.raises(SettingsError, match=r"belongs to another user, .*: .*remove it"):
        complete(settings)


def test_a_file_that_every_user_may_write_to_is_refused(settings: Settings) -> None:
    complete(settings)
    development_file(settings.data_dir).chmod(0o666)
    with pytest.raises(SettingsError, match="every user may write to it"):
        complete(settings)


def test_the_file_has_the_generated_token_and_secret(tmp_path: Path) -> None:
    made = complete(Settings(data_dir=tmp_path))
    kept = json.loads(development_file(tmp_path).read_text())
    assert kept == {"accessToken": made.clients[0].access_token, "signingSecret": made.signing_secrets[0]}


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for data_dir in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SettingsError, match="use another --data-dir"):
            complete(Settings(data_dir=data_dir))


def test_a_directory_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    development_file(tmp_path).mkdir()
    with pytest.raises(SettingsError, match="cannot be written and read"):
        complete(Settings(data_dir=tmp_path))
