"""Files and links that another user of the machine may have written are not read, followed or changed."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from legacy_queue.private_folder import (
    NotOurs,
    check_file,
    check_folder,
    lock_private,
    make_private,
    read_private,
    write_private,
)
from tests.other_user import OTHER, as_other_user, give_away

pytestmark = pytest.mark.processes


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("use", [make_private, check_folder])
def test_a_folder_or_a_link_of_another_user_is_refused(tmp_path: Path, use: Callable[[Path], object]) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "mine" / "inside").mkdir(parents=True)
    (tmp_path / "mine").chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    use(tmp_path / "link" / "inside")
    give_away(tmp_path / "data", tmp_path / "link")
    for name, why in (("data", "belongs to"), ("link", "link"), ("link/inside", "link")):
        with pytest.raises(NotOurs, match=rf"another user.*{why}|{why} another user"):
            use(tmp_path / name)
    assert mode(tmp_path / "mine") == 0o755
    (tmp_path / "data" / "inside").mkdir()
    use(tmp_path / "data" / "inside")


def test_a_folder_that_others_can_write_to_is_accepted_if_it_is_roots_and_made_private_if_it_is_ours() -> (
    None
):
    with as_other_user() as shared:
        assert make_private(shared)
        write_private(shared / "file", "mine")
        assert read_private(shared / "file") == b"mine"
        assert (shared / "file").stat().st_uid == OTHER
        data = shared / "data"
        data.mkdir()
        data.chmod(0o777)
        with pytest.raises(NotOurs, match="other users may write into it"):
            check_folder(data)
        assert not make_private(data)
        assert mode(data) == 0o700
        check_folder(data)


def linked(path: Path) -> None:
    path.rename(path.with_name("target"))
    path.symlink_to("target")
    give_away(path)


@pytest.mark.parametrize("spoil", [give_away, lambda path: path.chmod(0o660), linked])
@pytest.mark.parametrize("use", [read_private, check_file, lock_private])
def test_a_file_that_another_user_may_have_written_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], use: Callable[[Path], object]
) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    path.chmod(0o600)
    spoil(path)
    with pytest.raises(OSError, match=r"another user|other users may write|is a link|symbolic link"):
        use(path)
    assert path.read_text() == "text"


def test_a_pipe_in_place_of_a_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(OSError, match="not a regular file"):
        read_private(tmp_path / "pipe")


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_new_file_replaces_a_link_and_its_target_is_not_changed(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "theirs").write_text("theirs")
    link(tmp_path / "theirs", tmp_path / "file")
    write_private(tmp_path / "file", "secret")
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert (read_private(tmp_path / "file"), mode(tmp_path / "file")) == (b"secret", 0o600)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(tmp_path / "folder", "text")
    assert {path.name for path in tmp_path.iterdir()} == {"theirs", "file", "folder"}
