"""Hashes of files: damage is noticed, and an interrupted writer is not mistaken for damage."""

import os
import shutil
import subprocess

import pytest

from brio import storage
from brio.errors import BrioError
from commands import refuse
from faults import die_at, list_steps

OLD, NEW = {"a.csv": "old a", "b.json": "old b"}, {"b.json": "new b", "c.md": "new c"}


def read_stored(path, remedy):
    content = path.read_bytes()
    storage.check_stored(path, remedy)
    storage.check_stored(path, remedy, content)
    return content


@pytest.fixture
def folder(tmp_path):
    storage.write_recorded(tmp_path / "job", OLD)
    return tmp_path / "job"


def test_a_writer_that_is_killed_at_any_moment_leaves_files_that_fit(folder, tmp_path):
    copy = tmp_path / "copy"
    steps = list_steps(lambda: storage.write_recorded(shutil.copytree(folder, copy), NEW))
    whole = {path.name: path.read_bytes() for path in copy.iterdir()}
    for number in range(len(steps)):
        for when in ("before", "after"):
            shutil.rmtree(copy)
            shutil.copytree(folder, copy)
            assert die_at(number, when, lambda: storage.write_recorded(copy, NEW))
            for name in ("a.csv", "b.json", "c.md"):
                if storage.is_kept(copy / name, ""):
                    assert read_stored(copy / name, "").decode() in (OLD.get(name), NEW.get(name))
            storage.remove_leftovers(copy)
            storage.write_recorded(copy, NEW)  # the same again
            assert {path.name: path.read_bytes() for path in copy.iterdir()} == whole, (steps[number], when)


def test_what_is_there_already_is_not_written_again(folder):
    assert list_steps(lambda: storage.write_recorded(folder, OLD)) == []
    assert list_steps(lambda: storage.write_recorded(folder, {"b.json": OLD["b.json"]})) == []
    (folder / "a.csv").write_text("damaged")
    assert list_steps(lambda: storage.write_recorded(folder, OLD))
    assert read_stored(folder / "a.csv", "") == b"old a"


def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_is_written(folder):
    (folder / "c.md").mkdir()
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    refuse(r"c\.md: is a folder", storage.write_recorded, folder, NEW)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_what_a_killed_writer_had_written_is_recorded(folder):
    steps = list_steps(lambda: storage.write_recorded(folder, NEW))
    storage.write_recorded(folder, OLD)
    last_file = max(number for number, step in enumerate(steps) if step.name == "replace") - 1
    assert die_at(last_file, "before", lambda: storage.write_recorded(folder, NEW))
    storage.remove_leftovers(folder)
    assert storage.read_sums(folder, "").coming
    storage.write_recorded(folder, {})
    assert storage.read_sums(folder, "") == storage.Sums(
        {name: storage.hash_file(folder / name) for name in ("a.csv", "b.json", "c.md")}
    )


def test_sha256sum_reads_them(folder):
    if shutil.which("sha256sum"):
        assert (
            subprocess.run(["sha256sum", "--check", "--quiet", storage.SUMS], cwd=folder, check=False).returncode == 0
        )


@pytest.mark.parametrize("damage", [b"old_a", b"old", b"", b"old a\n"])
def test_a_damaged_file_is_named_with_the_remedy(folder, damage):
    (folder / "a.csv").write_bytes(damage)
    with pytest.raises(BrioError, match=r"a\.csv: has been changed or damaged since it was written; repeat it"):
        read_stored(folder / "a.csv", "repeat it")
    refuse(r"a\.csv: has been changed", storage.check_all, folder, "repeat it")
    assert read_stored(folder / "b.json", "repeat it") == b"old b"


def test_a_removed_file_is_missed(folder):
    (folder / "a.csv").unlink()
    with pytest.raises(BrioError, match=r"a\.csv: is missing, although SHA256SUMS lists it; repeat it, or"):
        storage.is_kept(folder / "a.csv", "repeat it")
    assert not storage.is_kept(folder / "other", "repeat it")
    refuse(r"a\.csv: is missing, although SHA256SUMS lists it; repeat it", storage.check_all, folder, "repeat it")


def test_hashes_that_are_missing_are_damage(folder):
    (folder / "unlisted").write_text("x")
    refuse(r"SHA256SUMS: has no line for unlisted; repeat it", read_stored, folder / "unlisted", "repeat it")
    (folder / storage.SUMS).unlink()
    refuse(r"SHA256SUMS: is missing; repeat it", read_stored, folder / "a.csv", "repeat it")
    refuse(r"SHA256SUMS: is missing; repeat it", storage.check_all, folder, "repeat it")


@pytest.mark.parametrize("text", ["x", "0" * 63 + "  a.csv\n", "0" * 64 + "  ../a.csv\n", "\ufeff"])
def test_hashes_that_are_no_hashes_are_damage(folder, text):
    (folder / storage.SUMS).write_text(text)
    refuse(r"SHA256SUMS: has been changed or damaged; repeat it", read_stored, folder / "a.csv", "repeat it")
    storage.write_recorded(folder, NEW)  # damaged hashes of other files do not come back
    sums = storage.read_sums(folder, "")
    assert sums is not None
    assert list(sums.listed) == ["b.json", "c.md"]


def test_every_required_file_has_a_line(folder):
    (folder / storage.SUMS).unlink()
    storage.write_sums(folder, ["a.csv"])
    assert storage.check_all(folder, "get it again", ["a.csv"]) == ["a.csv"]
    with pytest.raises(BrioError, match=r"SHA256SUMS: has no line for b\.json; get it again"):
        storage.check_all(folder, "get it again", ["a.csv", "b.json"])


def test_hashes_that_are_no_text_are_refused(folder):
    (folder / storage.SUMS).write_bytes(b"\xff\xfe")
    refuse(f"{storage.SUMS}: cannot be read .*; import it again", storage.read_sums, folder, "import it again")


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(OSError, match="it is not a regular file"):
        storage.hash_file(tmp_path / "a.csv")
    os.mkfifo(tmp_path / storage.SUMS)
    refuse(
        f"{storage.SUMS}: has been changed or damaged; import it again", storage.read_sums, tmp_path, "import it again"
    )
