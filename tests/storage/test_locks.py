"""A folder is reserved for one process, and a dead process reserves nothing."""

import errno
import os
import signal

import pytest

from brio.errors import BrioError
from brio.storage import LOCK, lock_folder


def test_a_lock_of_a_killed_process_stops_nobody(tmp_path):
    folder = tmp_path / "job"
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with lock_folder(folder):
            os.write(write, b"locked")
            signal.pause()
    assert os.read(read, 6) == b"locked"
    with pytest.raises(BrioError, match="job: another brio is at work there"), lock_folder(folder):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert (folder / LOCK).exists()
    with lock_folder(folder):
        (folder / "file").write_text("x")
    os.close(read)
    os.close(write)


def test_a_folder_made_for_nothing_goes_again(tmp_path):
    def fail(content: bool) -> None:
        with lock_folder(tmp_path / "a" / "b"):
            if content:
                (tmp_path / "a" / "b" / "plan.json").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail(content=False)
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        fail(content=True)
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {LOCK, "plan.json"}


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "treasure").write_text("mine")
    (tmp_path / LOCK).symlink_to(tmp_path / "treasure")
    with pytest.raises(BrioError, match=r"\.lock: cannot be written"), lock_folder(tmp_path):
        pass
    assert (tmp_path / "treasure").read_text() == "mine"


def test_a_folder_made_for_a_lock_that_cannot_be_written_goes_again(tmp_path, monkeypatch):
    def fail(lock, blocking):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("filelock.FileLock.acquire", fail)
    with pytest.raises(BrioError, match="the disk is full"), lock_folder(tmp_path / "a" / "b"):
        pass
    assert not list(tmp_path.iterdir())
