"""What another user of the machine may have written is neither read nor followed nor written to."""

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
def test_a_folder_of_another_user_is_refused(tmp_path: Path, use: Callable[[Path], object]) -> None:
    (tmp_path / "data").mkdir()
    give_away(tmp_path / "data")
    with pytest.raises(NotOurs, match="belongs to another user"):
        use(tmp_path / "data")
    (tmp_path / "data" / "inside").mkdir()
    use(tmp_path / "data" / "inside")


@pytest.mark.parametrize("use", [make_private, check_folder])
def test_a_link_of_another_user_to_a_folder_of_ours_is_refused(
    tmp_path: Path, use: Callable[[Path], object]
) -> None:
    (tmp_path / "mine" / "inside").mkdir(parents=True)
    (tmp_path / "mine").chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    use(tmp_path / "link" / "inside")
    give_away(tmp_path / "link")
    for folder in (tmp_path / "link", tmp_path / "link" / "inside"):
        with pytest.raises(NotOurs, match="another user's link"):
            use(folder)
    assert mode(tmp_path / "mine") == 0o755


def test_a_folder_of_ours_in_which_others_may_write_is_closed_to_them_or_refused() -> None:
    with as_other_user() as shared:
        data = shared / "data"
        data.mkdir()
        data.chmod(0o777)
        with pytest.raises(NotOurs, match="others may write into it"):
            check_folder(data)
        assert not make_private(data)
        assert mode(data) == 0o700
        check_folder(data)


def test_a_folder_of_roots_that_is_open_to_all_can_be_used() -> None:
    with as_other_user() as shared:
        assert make_private(shared)
        write_private(shared / "file", "mine")
        assert read_private(shared / "file") == b"mine"
        assert (shared / "file").stat().st_uid == OTHER


def not_ours(path: Path) -> None:
    give_away(path)


def open_to_a_group(path: Path) -> None:
    path.chmod(0o660)


def linked(path: Path) -> None:
    path.rename(path.with_name("target"))
    path.symlink_to("target")
    give_away(path)


@pytest.mark.parametrize("spoil", [not_ours, open_to_a_group, linked])
@pytest.mark.parametrize("use", [read_private, check_file, lock_private])
def test_a_file_that_another_user_may_have_written_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], use: Callable[[Path], object]
) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    path.chmod(0o600)
    spoil(path)
    with pytest.raises(OSError, match=r"another user|others may write|is a link|symbolic link"):
        use(path)
    assert path.read_text() == "text"


def test_what_is_no_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(OSError, match="no file"):
        read_private(tmp_path / "pipe")


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_file_is_written_anew_and_not_through_a_link(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "theirs").write_text("theirs")
    link(tmp_path / "theirs", tmp_path / "file")
    write_private(tmp_path / "file", "secret")
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert (read_private(tmp_path / "file"), mode(tmp_path / "file")) == (b"secret", 0o600)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_that_cannot_be_written_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(tmp_path / "file", "text")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
