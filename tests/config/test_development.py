"""The development client and secret are generated once and stored privately."""

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from legacy_queue.config import Settings, SettingsError
from legacy_queue.config.development import complete
from legacy_queue.domain.authentication import Client
from tests.other_user import give_away

CLIENT = Client("a/client", "an-access-token-of-some-length", ("*",))
SECRET = "a-signing-secret-of-some-length"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a" / "b" / "development.json"


@pytest.fixture
def settings(file: Path) -> Settings:
    return Settings(storage="azure", data_dir=file.parent)


def test_the_development_client_and_secret_are_generated_once_and_never_shown(settings: Settings) -> None:
    made = complete(settings)
    (client,) = made.clients
    (secret,) = made.signing_secrets
    assert client.client_id == made.development_client == "development"
    assert client.scopes == ("*",)
    assert client.access_token != secret
    for each in (client.access_token, secret):
        assert len(each) >= 43
        assert each not in repr(made)
    assert complete(settings) == made


def test_an_existing_directory_and_file_are_made_private(settings: Settings, file: Path) -> None:
    file.parent.mkdir(parents=True, mode=0o755)
    other = file.with_name("not-ours")
    for path in (file, other):
        path.write_text(json.dumps({"accessToken": "a" * 44, "signingSecret": "b" * 44}))
        path.chmod(0o644)
    complete(replace(settings, storage="azurite", clients=(CLIENT,), signing_secrets=(SECRET,)))
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700, (
        "even if the client and the secret are configured"
    )
    complete(settings)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, other)]
    assert modes == [0o600, 0o644], "other files keep their mode"


def test_a_directory_that_all_users_can_write_to_keeps_its_mode_and_is_logged(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with capture_logs() as logged:
        complete(Settings(data_dir=tmp_path))
    assert [line["event"] for line in logged] == ["data-directory-open"]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777


def test_memory_storage_leaves_no_file(tmp_path: Path) -> None:
    settings = Settings(storage="memory", data_dir=tmp_path)
    assert complete(settings) != complete(settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [b"", b'{"accessToken": "short", "signingSecret": "short"}', b"\xff"])
def test_a_damaged_file_is_refused_and_not_changed(settings: Settings, file: Path, text: bytes) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(text)
    with pytest.raises(SettingsError, match=r"development\.json is damaged: remove it"):
        complete(settings)
    assert file.read_bytes() == text


def test_a_file_that_all_users_can_write_to_is_refused(settings: Settings, file: Path) -> None:
    complete(settings)
    file.chmod(0o666)
    with pytest.raises(SettingsError, match="every user may write to it"):
        complete(settings)


@pytest.mark.processes
def test_a_data_directory_of_another_user_is_refused_by_each_storage(tmp_path: Path) -> None:
    give_away(tmp_path)
    for storage in ("memory", "embedded", "azurite", "azure"):
        with pytest.raises(SettingsError, match=r"belongs to another user; use another --data-dir$"):
            complete(Settings(storage=storage, data_dir=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_error_names_what_is_in_the_place_of_the_file_or_the_directory(tmp_path: Path) -> None:
    (tmp_path / "development.json").mkdir()
    (tmp_path / "file").touch()
    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(SettingsError, match=r"cannot be read and written: .*; use another --data-dir"):
            complete(Settings(data_dir=folder))
