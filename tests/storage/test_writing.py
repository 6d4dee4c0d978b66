"""Files and folders are there whole or not at all, and nothing is touched that brio did not make."""

import contextlib
import errno
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from brio import storage
from brio.errors import BrioError
from commands import command, refuse
from faults import die_at, failing, list_steps, raising, run_in_child, watching
from stored import load_script, name_leftover


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def write_folder(folder: Path) -> None:
    with storage.create_whole_folder(folder) as partial:
        storage.write_atomically(partial / "a", "one")
        storage.write_atomically(partial / "b", b"two")


# ---------------------------------------------------------------- a file


def test_a_killed_or_failing_process_leaves_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "file"
    steps = list_steps(lambda: storage.write_atomically(path, "old"))
    assert [step.name for step in steps] == ["create_file", "write", "sync", "replace", "sync_folder"]
    for number, step in enumerate(steps):
        for when in ("before", "after"):
            path.write_text("old")
            assert die_at(number, when, lambda: storage.write_atomically(path, "new"))
            renamed = (number, when) >= (3, "after") and (number, when) != (3, "before")
            assert path.read_text() == ("new" if renamed else "old"), (step, when)
            storage.remove_leftovers(tmp_path)
            assert names(tmp_path) == {"file"}, (step, when)
            with raising(number, KeyboardInterrupt, when), pytest.raises(KeyboardInterrupt):
                storage.write_atomically(path, "new")
            assert names(tmp_path) == {"file"}, (step, when)
        path.write_text("old")
        with (
            failing(number),
            pytest.raises(BrioError, match="file: cannot be written because the disk is full; free some"),
        ):
            storage.write_atomically(path, "new")
        assert names(tmp_path) == {"file"}, step


def test_a_link_under_any_name_is_not_followed(tmp_path, monkeypatch):
    treasure = tmp_path / "treasure"
    treasure.write_text("mine")
    path = tmp_path / "report.html"
    monkeypatch.setattr("brio.storage.reserve_name", lambda folder, final="": folder / "guessed")
    (tmp_path / "guessed").symlink_to(treasure)
    refuse(r"report\.html: cannot be written \(File exists\)", storage.write_atomically, path, "page")
    monkeypatch.undo()
    path.symlink_to(treasure)
    storage.write_atomically(path, "page")
    assert not path.is_symlink()
    assert treasure.read_text() == "mine"


def test_what_is_no_ordinary_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, words in ((tmp_path / "pipe", "is not a regular file"), (tmp_path, "is a folder")):
        refuse(words, storage.write_atomically, path, "x")
    (tmp_path / "null").symlink_to(os.devnull)
    refuse("is not a regular file", storage.write_atomically, tmp_path / "null", "x")
    assert names(tmp_path) == {"pipe", "null"}


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EFBIG])
def test_other_errors_of_the_system_name_the_file(tmp_path, code):
    with failing(0, code), pytest.raises(BrioError) as told:
        storage.write_atomically(tmp_path / "file", "x")
    assert str(told.value).startswith(f"{tmp_path / 'file'}: cannot be written ({os.strerror(code)}); ")


def test_text_that_is_no_text_is_refused(tmp_path):
    refuse("a name in it is not valid UTF-8", storage.write_atomically, tmp_path / "file", "\udcff")
    assert not names(tmp_path)


# ---------------------------------------------------------------- a folder


def test_a_folder_is_whole_or_not_there_at_every_moment(tmp_path):
    steps = list_steps(lambda: write_folder(tmp_path / "first" / "out"))
    assert {"make_folder", "create_file", "write", "sync", "replace", "rename"} <= {step.name for step in steps}
    renamed = next(number for number, step in enumerate(steps) if step.name == "rename")
    for number, step in enumerate(steps):
        for when in ("before", "after"):
            place = tmp_path / f"{number} {when}"
            out = place / "above" / "out"
            place.mkdir()
            assert die_at(number, when, lambda out=out: write_folder(out))
            if out.exists():
                assert (number, when) >= (renamed, "after") or number > renamed
                assert names(out) == {"a", "b"}, (step, when)
            else:
                write_folder(out)  # the same again
                assert names(out.parent) == {"out"}, (step, when)
        out = tmp_path / f"full {number}" / "out"
        if number <= renamed:
            with failing(number), pytest.raises(BrioError, match="the disk is full") as told:
                write_folder(out)
            assert "partial" not in str(told.value)
            assert not out.parent.exists(), step
            with raising(number, KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
                write_folder(out)
            assert not out.parent.exists(), step


def test_of_two_that_write_one_folder_the_first_to_end_wins(tmp_path):
    out = tmp_path / "out"

    def lose() -> None:
        with storage.create_whole_folder(out) as partial:
            storage.write_atomically(partial / "late", "x")
            write_folder(out)

    refuse("out: another process has written this folder", lose)
    assert names(tmp_path) == {"out"}
    assert names(out) == {"a", "b"}


def test_an_empty_folder_or_a_link_to_nowhere_exists_too(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("empty", "link"):
        refuse("already exists", write_folder, tmp_path / name)
    assert names(tmp_path) == {"empty", "link"}


def test_folders_above_one_that_cannot_be_made_go_again(tmp_path):
    (tmp_path / "file").write_text("x")
    refuse("cannot be written .*; correct this, then", storage.make_folders, tmp_path / "file" / "below")
    (tmp_path / "file").unlink()
    refuse(r"cannot be written \(File name too long\)", storage.make_folders, tmp_path / "a" / "b" / ("x" * 300))
    refuse(r"cannot be written \(File name too long\)", write_folder, tmp_path / "a" / ("x" * 300) / "out")
    assert not names(tmp_path)


def test_the_second_of_two_writers_learns_it_before_it_begins(tmp_path):
    out = tmp_path / "out"
    storage.refuse_existing(out)
    with storage.create_whole_folder(out):
        refuse("out: another brio process is writing this folder", storage.refuse_existing, out)
        storage.refuse_existing(tmp_path / "other")
    refuse("out: already exists", storage.refuse_existing, out)
    dead = name_leftover(tmp_path)
    dead.with_name(dead.name.replace(".partial", f"-{storage.reserve_name(out, 'new').name.split('-')[5]}")).mkdir()
    assert storage.is_partial(names(tmp_path).difference({"out"}).pop())
    storage.refuse_existing(tmp_path / "new")


# ---------------------------------------------------------------- leftovers


def test_only_what_a_dead_process_of_ours_left_is_removed(tmp_path):
    dead, own = name_leftover(tmp_path), storage.reserve_name(tmp_path)
    head, machine, number, process, count = own.name.split("-")
    elsewhere = tmp_path / f"{head}-{'0' * 8}-{dead.name.split('-')[2]}-{process}-{count}"
    living = tmp_path / f"{head}-{machine}-{os.getppid()}-{process}-{count}"
    recycled = tmp_path / f"{head}-{machine}-{number}-{'0' * 8}-{count}"  # of an earlier process with our number
    foreign = [tmp_path / name for name in ("cx.partial", ".brio-mine.partial", ".partial")]
    for path in (dead, own, elsewhere, living, recycled, *foreign):
        path.mkdir()
        (path / "content").write_text("x")
    assert storage.is_partial(dead.name)
    storage.remove_leftovers(tmp_path)
    assert names(tmp_path) == {path.name for path in (own, elsewhere, living, *foreign)}
    storage.remove_leftovers(tmp_path, reserved=True)
    assert names(tmp_path) == {path.name for path in foreign}
    storage.remove_leftovers(tmp_path / "not there")


def test_a_container_numbers_its_processes_by_itself(tmp_path, monkeypatch):
    """Two with one host name that share a folder: a process that one does not see may live in the other."""
    left = name_leftover(tmp_path)
    left.mkdir()
    storage._get_machine.cache_clear()
    monkeypatch.setattr(storage.os, "readlink", lambda path: "pid:[1]")
    try:
        storage.remove_leftovers(tmp_path)
        assert names(tmp_path) == {left.name}
    finally:
        storage._get_machine.cache_clear()


def test_links_in_a_leftover_are_not_followed(tmp_path):
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "gold").write_text("mine")
    left = name_leftover(tmp_path)
    left.symlink_to(treasure)
    storage.remove_leftovers(tmp_path)
    assert names(tmp_path) == {"treasure"}
    assert names(treasure) == {"gold"}


def test_a_terminated_command_cleans_up(tmp_path):
    """As after a scheduler's SIGTERM: the child ends with 143 and nothing is left."""

    def run() -> int:
        def hook(number, step, when):
            if step.name == "write" and step.target == "" and when == "before":
                os.kill(os.getpid(), signal.SIGTERM)

        with watching(hook):
            said = command("simulate", "--out", tmp_path / "out", "--sites", 3, "--per-class", 2, "--frames", 60)
        (tmp_path / "said").write_text(said.err)
        return said.status

    assert run_in_child(run) == 143
    assert names(tmp_path) == {"said"}
    assert (tmp_path / "said").read_text() == (
        "brio: terminated; run the same command again (no half-written files were left)\n"
    )


def test_a_place_is_tried_before_long_work_and_nothing_is_left(tmp_path):
    storage.require_creatable(tmp_path / "a" / "b" / "model")
    assert not list(tmp_path.iterdir())
    with (
        failing(0, errno.EROFS, lasting=True),
        pytest.raises(BrioError, match=r"model: cannot be written \(Read-only.*writable"),
    ):
        storage.require_creatable(tmp_path / "model")
    assert not list(tmp_path.iterdir())
    (tmp_path / "model").mkdir()
    refuse("model: already exists", storage.require_creatable, tmp_path / "model")


def test_a_trial_that_is_disturbed_leaves_nothing(tmp_path):
    out = tmp_path / "a" / "b" / "model"
    n_steps = len(list_steps(lambda: storage.require_creatable(out)))
    assert n_steps == 6  # two folders and the trial, made and removed
    for number in range(n_steps):
        with failing(number, lasting=False), contextlib.suppress(BrioError):
            storage.require_creatable(out)
        assert not list(tmp_path.iterdir()), number
        with raising(number, KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            storage.require_creatable(out)
        assert not list(tmp_path.iterdir()), number


# ---------------------------------------------------------------- a folder of one process


def test_a_lock_of_a_killed_process_stops_nobody(tmp_path):
    folder = tmp_path / "job"
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with storage.lock_folder(folder):
            os.write(write, b"locked")
            signal.pause()
    assert os.read(read, 6) == b"locked"
    with pytest.raises(BrioError, match="job: another brio process is using this folder"), storage.lock_folder(folder):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert (folder / storage.LOCK).exists()
    with storage.lock_folder(folder):
        (folder / "file").write_text("x")
    os.close(read)
    os.close(write)


def test_a_folder_made_for_nothing_goes_again(tmp_path):
    def fail(content: bool) -> None:
        with storage.lock_folder(tmp_path / "a" / "b"):
            if content:
                (tmp_path / "a" / "b" / "plan.json").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail(content=False)
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        fail(content=True)
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {storage.LOCK, "plan.json"}


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "treasure").write_text("mine")
    (tmp_path / storage.LOCK).symlink_to(tmp_path / "treasure")
    with pytest.raises(BrioError, match=r"\.lock: cannot be written"), storage.lock_folder(tmp_path):
        pass
    assert (tmp_path / "treasure").read_text() == "mine"


def test_a_folder_made_for_a_lock_that_cannot_be_written_goes_again(tmp_path, monkeypatch):
    monkeypatch.setattr("filelock.FileLock.acquire", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(BrioError, match="the disk is full"), storage.lock_folder(tmp_path / "a" / "b"):
        pass
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- waiting for the disk


@pytest.fixture(scope="module")
def disk():
    """The module as it is: tests replace its functions, since they need not wait."""
    return load_script(Path(storage.disk.__file__))


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
