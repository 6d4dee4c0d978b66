"""Syncing files and folders; a drive that cannot sync folders is no error."""

import errno
import importlib.util
import os
from types import SimpleNamespace

import pytest

from brio.storage import disk as patched


@pytest.fixture(scope="module")
def disk():
    """The module as it is: tests replace its functions, since they need not wait."""
    spec = importlib.util.spec_from_file_location("unpatched_disk", patched.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def synced(monkeypatch):
    """Inodes of what was waited for."""
    waited = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: waited.append(os.fstat(descriptor).st_ino))
    return waited


def test_a_file_and_its_folder_are_waited_for(disk, synced, tmp_path):
    (tmp_path / "file").touch()
    with (tmp_path / "file").open() as file:
        disk.sync(file.fileno())
    disk.sync_folder(tmp_path)
    assert synced == [(tmp_path / "file").stat().st_ino, tmp_path.stat().st_ino]


@pytest.mark.parametrize(("number", "passes"), [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_a_drive_that_cannot_sync_folders_is_no_error(disk, number, passes, monkeypatch, tmp_path):
    used = []

    def fail(descriptor):
        used.append(descriptor)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    if passes:
        disk.sync_folder(tmp_path)
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            disk.sync_folder(tmp_path)
    with pytest.raises(OSError, match="Bad file descriptor"):  # it was closed
        os.fstat(used[0])


def test_a_system_that_cannot_sync_folders_is_left_alone(disk, monkeypatch, tmp_path):
    monkeypatch.setattr(disk, "os", SimpleNamespace(name="nt"))  # opens nothing
    disk.sync_folder(tmp_path)
