"""A stack that is killed in the middle goes on from its checkpoint, and ends in the bytes of one that was not."""

import dataclasses
import shutil
import time
from pathlib import Path

import pytest
import torch

import brio as package
from brio.device import ComputeDevice
from brio.errors import BrioError
from brio.jobs import JobSpec, prepare_job, train
from brio.jobs.plan import build_plan
from brio.jobs.train import CheckpointFile, checkpoint_identity
from brio.results.store import read_checkpoint, write_checkpoint
from brio.storage import disk
from brio.training import StackCheckpoint, trainer
from commands import refuse
from stored import name_leftover, read_without_seconds

EPOCHS = 4
SETTINGS = {"epochs": EPOCHS, "patience": None, "width": 4}
EVERY_EPOCH = 1e-9


class Killed(BaseException):
    """What stands here for a process that is killed: nothing handles it."""


def run(folder: Path, out: Path, say=lambda line: None, **options) -> None:
    options = {"checkpoint_every": EVERY_EPOCH, "runs_per_stack": 3, "folds": ["site01", "site02"], **options}
    package.run(folder, "mlp", out=out, settings=SETTINGS, device="cpu", seeds=2, say=say, **options)


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory) -> Path:
    """A job of two stacks that was not disturbed and stored no checkpoint."""
    out = tmp_path_factory.mktemp("checkpoints") / "finished"
    run(folder, out, checkpoint_every=0)
    return out


@pytest.fixture
def epochs(monkeypatch) -> list[int]:
    """Every epoch that is trained."""
    trained: list[int] = []
    train_epoch = trainer._train_epoch

    def record(method, step, epoch, running):
        trained.append(epoch)
        return train_epoch(method, step, epoch, running)

    monkeypatch.setattr(trainer, "_train_epoch", record)
    return trained


def kill_in_epoch(number: int, monkeypatch, error: type[BaseException] = Killed) -> None:
    """Kill the job in the middle of its n-th epoch, over all stacks, or interrupt it."""
    train_epoch, count = trainer._train_epoch, []

    def die(method, step, epoch, running):
        count.append(epoch)
        train_epoch(method, step, epoch, running)
        if len(count) == number:
            raise error

    monkeypatch.setattr(trainer, "_train_epoch", die)


def kill_in_checkpoint(number: int, monkeypatch) -> None:
    """Kill the job when its n-th checkpoint is on the disk, but not yet in place; nothing is tidied up."""
    replace, remove, count = disk.replace, disk.remove_file, []

    def die(source, target):
        if target.suffix == ".safetensors":
            count.append(target)
            if len(count) == number:
                raise Killed
        return replace(source, target)

    monkeypatch.setattr(disk, "replace", die)
    monkeypatch.setattr(disk, "remove_file", lambda path: len(count) < number and remove(path))


@pytest.mark.parametrize(
    ("kill", "lost", "said"),
    [
        (lambda patch: kill_in_epoch(EPOCHS + 3, patch), 1, "stack 2 of 2: resuming after epoch 2"),
        (lambda patch: kill_in_checkpoint(2, patch), 1, "stack 1 of 2: resuming after epoch 1"),
    ],
)
def test_killed_in_the_middle_of_a_stack(kill, lost, said, folder, finished, epochs, tmp_path):
    out, lines = tmp_path / "job", []
    with pytest.MonkeyPatch.context() as patch:
        kill(patch)
        with pytest.raises(Killed):
            run(folder, out)
    (checkpoint,) = (out / "checkpoints").glob("*.safetensors")
    assert checkpoint.stat().st_size > 0
    run(folder, out, lines.append)
    assert any(line.endswith(said) for line in lines), lines
    assert len(epochs) == 2 * EPOCHS + lost, "epochs since the last checkpoint, and no others, are trained twice"
    assert read_without_seconds(out) == read_without_seconds(finished)
    assert not (out / "checkpoints").exists()


@pytest.fixture(scope="module")
def interrupted(folder, tmp_path_factory) -> Path:
    """A job that was killed in the third epoch of its first stack; never changed by a test."""
    out = tmp_path_factory.mktemp("checkpoints") / "interrupted"
    with pytest.MonkeyPatch.context() as patch:
        kill_in_epoch(3, patch)
        with pytest.raises(Killed):
            run(folder, out)
    return out


@pytest.fixture
def copy(interrupted, tmp_path) -> Path:
    return Path(shutil.copytree(interrupted, tmp_path / "job"))


def flip_bit(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("problem", ["is damaged", "another plan, version or device"])
def test_a_checkpoint_that_cannot_be_trusted_is_named_and_not_used(
    problem, folder, finished, copy, epochs, monkeypatch
):
    lines = []
    if problem == "is damaged":
        (path,) = (copy / "checkpoints").iterdir()
        path.write_bytes(flip_bit(path.read_bytes(), path.stat().st_size - 1))
    else:
        monkeypatch.setattr(train, "FORMAT", train.FORMAT + 1)
    run(folder, copy, lines.append)
    (line,) = [line for line in lines if "checkpoints" in line]
    assert problem in line
    assert line.endswith("it is not used, and the stack is trained from its first epoch")
    assert epochs == [1, 2, 3, 4] * 2
    assert read_without_seconds(copy) == read_without_seconds(finished)


def test_a_checkpoint_belongs_to_one_plan_stack_version_and_device(folder, monkeypatch):
    job = prepare_job(JobSpec(folder, device="cpu"))
    plan = dataclasses.replace(build_plan(job, ["ridge"]).document, stacks=(("a", "b"), ("c",)))
    own = checkpoint_identity(job, plan, ("a", "b"))
    assert own == checkpoint_identity(job, dataclasses.replace(plan), ("a", "b"))
    others = [checkpoint_identity(job, plan, ("a",))]
    for change in ({"brio": "0.0"}, {"threads": 99}, {"seeds": (0, 1)}, {"fingerprint": "another"}):
        others.append(checkpoint_identity(job, dataclasses.replace(plan, **change), ("a", "b")))
    for name in ("torch", "numpy", "python"):
        with monkeypatch.context() as patch:
            patch.setitem(train._VERSIONS, name, "another")
            others.append(checkpoint_identity(job, plan, ("a", "b")))
    with monkeypatch.context() as patch:
        patch.setattr(train, "FORMAT", "another")
        others.append(checkpoint_identity(job, plan, ("a", "b")))
    monkeypatch.setattr(ComputeDevice, "describe", lambda self: "another")
    others.append(checkpoint_identity(job, plan, ("a", "b")))
    assert len({own, *others}) == 1 + len(others)


def test_an_intact_checkpoint_is_used_even_where_no_other_is_stored(folder, finished, copy, epochs):
    name_leftover(copy / "checkpoints").write_bytes(b"half")
    run(folder, copy, checkpoint_every=0)
    assert epochs == [3, 4, 1, 2, 3, 4]
    assert read_without_seconds(copy) == read_without_seconds(finished)


def test_what_a_finished_stack_left_is_removed_without_a_word(folder, finished, interrupted, tmp_path):
    """As after a kill between the last run and the removal of the checkpoint."""
    out, lines = tmp_path / "job", []
    shutil.copytree(finished, out)
    shutil.copytree(interrupted / "checkpoints", out / "checkpoints")
    run(folder, out, lines.append)
    assert not any("checkpoint" in line for line in lines)
    assert read_without_seconds(out) == read_without_seconds(finished)


def test_checkpoints_are_stored_by_the_clock(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    path = tmp_path / "checkpoints" / "stack.safetensors"
    file = CheckpointFile(path, "job", 120)
    due = []
    for now[0] in (110.0, 219.0, 220.0):
        due.append(file.is_due())
    file.save(StackCheckpoint({"epoch": 3, "number": 1}, {"w": torch.ones(2)}))
    for now[0] in (221.0, 339.0, 340.0):
        due.append(file.is_due())
    assert due == [False, False, True] * 2
    later = CheckpointFile(path, "job", 0)
    now[0] = 1000.0
    assert not later.is_due()
    assert later.seconds == 120 + 660
    assert later.message == "resuming after epoch 3"
    assert torch.equal(later.load().tensors["w"], torch.ones(2))


# ---------------------------------------------------------------- Ctrl-C

FIT = ["--method", "mlp", "--set", f"epochs={EPOCHS}", "--set", "patience=none", "--set", "width=4", "--device", "cpu"]
RUN = [*FIT, "--seeds", "2", "--fold", "site01", "--fold", "site02", "--runs-per-stack", "3", "--quiet"]
RUN += ["--checkpoint-every", str(EVERY_EPOCH)]


def test_ctrl_c_says_how_to_go_on(brio, folder, finished, epochs, tmp_path):
    out = tmp_path / "job"
    with pytest.MonkeyPatch.context() as patch:
        kill_in_epoch(2, patch, KeyboardInterrupt)
        said = brio("run", folder, "--out", out, *RUN)
    assert said.status == 130
    assert said.err == "brio: interrupted; run the same command again to resume\n"
    assert not list(out.rglob("*.partial"))
    again = brio("run", folder, "--out", out, *RUN).succeed()
    assert "resuming after epoch 1" in again.out
    assert epochs[2:4] == [2, 3]
    assert read_without_seconds(out) == read_without_seconds(finished)


def test_a_local_fit_resumes_if_checkpoints_are_asked_for(brio, folder, epochs, tmp_path):
    """Without the option, and with 0, nothing is left beside the model that was not written."""
    with pytest.MonkeyPatch.context() as patch:
        for name, further in (("none", []), ("zero", ["--checkpoint-every", "0"])):
            with patch.context() as inner:
                kill_in_epoch(2, inner, KeyboardInterrupt)
                assert brio("fit", folder, "--out", tmp_path / name, *FIT, "--quiet", *further).status == 130
        assert list(tmp_path.iterdir()) == []
        words = ["fit", folder, "--out", tmp_path / "model", *FIT, "--quiet", "--checkpoint-every", str(EVERY_EPOCH)]
        kill_in_epoch(3, patch, KeyboardInterrupt)
        assert brio(*words).status == 130
    assert [path.name for path in tmp_path.iterdir()] == ["model.job"]
    epochs.clear()
    again = brio(*words).succeed()
    assert "resuming after epoch 2" in again.out
    assert epochs[:3] == [3, 4, 1], "then it is fitted to all sites"
    assert brio("fit", folder, "--out", tmp_path / "whole", *FIT, "--quiet").status == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "whole"]
    models = [{p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("model", "whole")]
    assert models[0] == models[1]


def test_any_damage_is_seen(tmp_path):
    path = tmp_path / "checkpoints" / "stack.safetensors"
    tensors = {"w": torch.arange(3.0), "n": torch.tensor(2), "mask": torch.tensor([True]), "none": torch.ones(0)}
    write_checkpoint(path, "job", 1.0, StackCheckpoint({"epoch": 3}, tensors))
    whole, refused = path.read_bytes(), 0
    for place in range(0, len(whole), 5):
        path.write_bytes(flip_bit(whole, place))
        try:
            read, seconds = read_checkpoint(path, "job")
        except BrioError:
            refused += 1
        else:  # white space of the header
            assert (read.facts, seconds) == ({"epoch": 3}, 1.0)
            assert all(torch.equal(read.tensors[name], t) for name, t in tensors.items())
    assert refused > 0.9 * len(whole) / 5
    path.write_bytes(whole[:-1])
    refuse("cannot be read", read_checkpoint, path, "job")
