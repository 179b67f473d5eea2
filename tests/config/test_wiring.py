"""The server that ``build`` makes from settings. Nothing is sent to storage. tests/http shows its answers."""

import base64
import os
import shutil
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from werkzeug.test import Client

from legacy_queue.config import Settings, SettingsError
from legacy_queue.config.development import complete
from legacy_queue.domain.authentication import Client as HawkClient
from legacy_queue.ports.account import UnusableStorage
from legacy_queue.private_folder import lock_private
from legacy_queue.server.local_authority import LocalAuthority
from legacy_queue.wiring import build, make_backup, served_file
from tests.other_user import as_other_user

SETTINGS = Settings(
    storage="memory",
    clients=(HawkClient("a/client", "an-access-token-of-some-length", ("*",)),),
    signing_secrets=("a-signing-secret-of-some-length",),
)
CONNECTION = (
    "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=UzNDUkVU;EndpointSuffix=core.windows.net"
)
EXPIRY = datetime(2100, 1, 1, tzinfo=UTC)
AZURE = replace(SETTINGS, storage="azure", connection_string=CONNECTION)


def test_with_control_signed_urls_for_an_azure_account_lead_to_the_server_and_have_a_key_of_their_own() -> (
    None
):
    controlled = replace(AZURE, control=True)
    account, again = (build(controlled, "http://h:1").storage.account for _ in range(2))
    assert account.endpoints["queue"] == "https://acc.queue.core.windows.net", (
        "the messages are still in the account"
    )
    assert account.public_queues.url == "http://h:1/azure/gateway"
    assert account.public_queues == account.public_blobs == again.public_queues, "the key stays the same"
    assert account.public_queues.key not in CONNECTION
    assert len(base64.b64decode(account.public_queues.key)) == 64
    other = replace(controlled, signing_secrets=("another-signing-secret-of-some-length",))
    assert build(other, "http://h:1").storage.account.public_queues.key != account.public_queues.key


def test_the_error_for_an_invalid_connection_string_does_not_show_its_secret() -> None:
    with pytest.raises(SettingsError, match="connection string cannot be used") as error:
        build(replace(AZURE, connection_string="AccountKey=S3CRET;x"), "http://h:1")
    assert "S3CRET" not in str(error.value)


@pytest.mark.parametrize(("settings", "path"), [(SETTINGS, "embedded"), (AZURE, None)])
def test_signed_urls_lead_to_the_server_or_the_account_unless_a_public_url_is_set(
    settings: Settings, path: str | None
) -> None:
    account = build(settings, "http://h:1").storage.account
    own = f"http://h:1/azure/{path}" if path else "https://acc.queue.core.windows.net"
    assert account.endpoints["queue"] == own
    answer = Client(build(settings, "http://h:1").app).get("/azure/account/queue/messages")
    assert answer.mimetype == ("application/xml" if path else "application/json"), (
        "in front of Azure there is no gateway"
    )
    public = replace(settings, public_queue_url="https://poll.example.com", public_blob_url="https://b.com/x")
    storage = build(public, "http://h:1").storage
    assert storage.blobs.upload_url("name", EXPIRY).startswith("https://b.com/x/")
    assert storage.blobs.download_url("name", EXPIRY).startswith("https://b.com/x/")
    poll = storage.account.queue("q").signed_urls(EXPIRY, EXPIRY, timedelta(0)).poll
    assert poll.startswith("https://poll.example.com/")


@pytest.mark.parametrize("left", ["storage.sqlite-wal", "artifacts", "server.json", "storage.lock"])
def test_if_the_storage_file_was_lost_the_server_refuses_to_start_with_a_new_one(
    tmp_path: Path, left: str
) -> None:
    """Any file that is left of the lost storage is enough, even if clients are configured."""
    settings = replace(SETTINGS, storage="embedded", data_dir=tmp_path / "data")
    with served_file(settings):
        account = build(settings, "http://h:1").storage.account
        account.check()
        account.container.put("name", bytes(70_000), "text/plain", None)
        (settings.data_dir / "server.json").write_text('{"file": "/data/storage.sqlite"}')
        after = replace(settings, data_dir=tmp_path / "after")
        after.data_dir.mkdir()
        kept = settings.data_dir / left
        (shutil.copytree if kept.is_dir() else shutil.copy)(kept, after.data_dir / left)
        account.close()
    with pytest.raises(
        UnusableStorage, match=f": {left}. Start from a backup .*, or remove all of this to start anew"
    ):
        served_file(after).__enter__()
    assert not (after.data_dir / "storage.sqlite").exists()


def test_a_backup_includes_the_generated_secrets(tmp_path: Path) -> None:
    """So signed messages and credentials of claims stay valid, and clients trust the same authority."""
    settings = replace(SETTINGS, storage="embedded", data_dir=tmp_path / "data", tls="auto", clients=())
    with served_file(settings):
        known = complete(settings)
        authority = LocalAuthority(settings.tls_dir)
        authority.ensure(datetime.now(UTC))
        make_backup(settings, tmp_path / "monday", lambda *_: None)
    copy = replace(settings, data_dir=tmp_path / "monday")
    assert not any(stat.S_IMODE(path.stat().st_mode) & 0o077 for path in copy.data_dir.rglob("*"))
    with served_file(copy):
        assert complete(copy).clients == known.clients
    copied = LocalAuthority(copy.tls_dir)
    copied.ensure(datetime.now(UTC))
    assert copied.certificate.read_text() == authority.certificate.read_text()
    with pytest.raises(UnusableStorage, match="--storage memory has no file"):
        make_backup(SETTINGS, tmp_path / "other", lambda *_: None)


def test_a_first_start_that_failed_can_be_repeated(tmp_path: Path) -> None:
    """The next start can use this storage or another, but not if an Azurite in this folder has served."""
    settings = replace(SETTINGS, storage="embedded", data_dir=tmp_path)
    os.close(lock_private(tmp_path / "storage.lock"))
    os.close(lock_private(tmp_path / "azurite" / "lock"))
    (tmp_path / "artifacts").mkdir()  # as if it were a mounted disk
    (tmp_path / "development.json").touch()  # as if from a server with another storage
    has_served = tmp_path / "azurite" / "connection-string"
    has_served.touch()
    with pytest.raises(UnusableStorage, match="azurite has the tasks of an earlier start"):
        served_file(settings).__enter__()
    has_served.unlink()
    with served_file(settings):
        assert (tmp_path / "storage.sqlite").exists()


@pytest.mark.processes
def test_the_error_for_another_users_data_directory_says_what_to_do() -> None:
    with as_other_user() as folder:
        (folder / "data").mkdir(0o000)
        settings = replace(SETTINGS, storage="embedded", data_dir=folder / "data")
        with pytest.raises(UnusableStorage, match="Permission denied; use another --data-dir"):
            served_file(settings).__enter__()
