"""What must not matter does not: margins stay the same to a millionth of their spread.

Each change leaves the question and the connectomes as they are. Networks draw random numbers that are addressed by the
names of participants and sites and by the position of a region; these may move their margins, nothing else may.
"""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from checks import mark_long, new_folder, read
from cohorts import BUILDERS, rename, rename_sites, run_job, shrink, shuffle
from scipy.io import savemat

import brio
from brio.cohort import Atlas
from brio.methods import list_methods
from brio.methods.linear.base import LinearMethod
from commands import command

METHODS = list_methods()
LINEAR = tuple(entry.name for entry in METHODS if issubclass(entry.method_class, LinearMethod))
DETERMINISTIC = tuple(name for name in LINEAR if name != "core-scaffold")
"""Without the one that needs validation sites."""
NEURAL = tuple(entry.name for entry in METHODS if entry.name not in LINEAR)
ITERATIVE = {"svm": 1e-3, "logistic": 1e-4, "core-scaffold": 1e-4}
"""Solvers that stop at a tolerance, and how far their margins then move."""
WITHOUT_A_DRAW = (("choose_by", "source-sites"), ("protocol__validation_sites", 0))
"""Validation sites are drawn by name; without them, nothing that a deterministic method does is drawn."""
COHORTS = ("dead region", "unequal scans", "two sessions")


def double(people):
    """Every region of every scan in another unit, a power of two, which rounds nothing."""
    rng = np.random.default_rng(2)
    return dataclasses.replace(people, scans=[x * 2.0 ** rng.integers(-3, 8, x.shape[1]) for x in people.scans])


def rescale(people):
    """Every region of every scan in another unit, around another level."""
    rng = np.random.default_rng(2)
    scans = [
        np.where(x.std(0) > 0, x * rng.uniform(0.1, 30, x.shape[1]) + rng.normal(0, 3, x.shape[1]), x)
        for x in people.scans
    ]
    return dataclasses.replace(people, scans=scans)


def reorder_regions(people):
    """The same regions in another order."""
    order = np.random.default_rng(3).permutation(len(people.atlas))
    atlas = Atlas(people.atlas.name, people.atlas.rois.iloc[order].reset_index(drop=True))
    return dataclasses.replace(people, scans=[scan[:, order] for scan in people.scans], atlas=atlas)


def as_they_are(people):
    """The same cohort, in a job of its own."""
    return people


CHANGES = (double, rescale, reorder_regions, shuffle, rename, rename_sites, as_they_are)
FOR_NETWORKS = (double, shuffle, as_they_are)
ROUNDED = dict.fromkeys(LINEAR, 5e-6)
"""Limits for frames in other units: they are stored in single precision, so that the change itself rounds them."""


def compare_margins(first, second, people, changed, limits):
    """Compare the margins of every run of two jobs, relative to their spread."""
    ids = dict(zip(people.table["participant_id"], changed.table["participant_id"], strict=True))
    sites = dict(zip(people.table["site"], changed.table["site"], strict=True))
    key = ["method", "fold", "seed", "participant_id", *(["session"] if "session" in people.table else [])]
    one = read(first / "predictions.csv").replace({"participant_id": ids, "fold": sites})
    other = read(second / "predictions.csv")
    one, other = (table.set_index([k for k in key if k in table]).sort_index()["margin"] for table in (one, other))
    assert list(one.index) == list(other.index)
    moved = {}
    for run, margins in one.groupby(level=["method", "fold", "seed"]):
        difference = (other.loc[margins.index] - margins).abs().max()
        spread = margins.std()
        moved[run[0]] = max(moved.get(run[0], 0.0), difference / spread if spread > 1e-9 else difference)
    assert {name: size for name, size in moved.items() if size > limits.get(name, 1e-6)} == {}
    assert len(moved) == one.index.get_level_values("method").nunique()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", mark_long(COHORTS, COHORTS[:1]))
def test_deterministic_margins_depend_on_connectomes_alone(name, change):
    people = BUILDERS[name]()
    changed = change(people) if change in (rename, rename_sites) else people  # else under the same names
    first, second = (run_job(name, *DETERMINISTIC, change=c, settings=WITHOUT_A_DRAW) for c in (None, change))
    limits = ROUNDED | ITERATIVE if change is rescale else ITERATIVE
    compare_margins(first, second, people, changed, limits)
    if changed is people:
        jobs = (run_job(name, "core-scaffold", change=c) for c in (None, change))
        compare_margins(*jobs, people, people, ITERATIVE)


@pytest.mark.parametrize("change", FOR_NETWORKS)
@pytest.mark.parametrize("method", mark_long(NEURAL, ["gcn"]))
def test_margins_of_networks_depend_on_no_unit_and_no_order_of_scans(method, change):
    people, options = BUILDERS["5 sites"](), {"folds": ("site01",)}
    first, second = (run_job("5 sites", method, change=c, **options) for c in (None, change))
    compare_margins(first, second, people, people, dict.fromkeys(NEURAL, 1e-3) | {"core": 1e-2})  # single precision


def write_files(people, folder, suffix):
    """Write one file per scan in some format, and the table beside them."""
    folder.mkdir()
    names = people.atlas.rois["name"].tolist()
    for participant, scan in zip(people.table["participant_id"], people.scans, strict=True):
        path, x = folder / f"{participant}{suffix}", np.asarray(scan, dtype=np.float64)
        if suffix in (".csv", ".tsv"):
            pd.DataFrame(x, columns=names).to_csv(path, sep="\t" if suffix == ".tsv" else ",", index=False)
        elif suffix == ".npy":
            np.save(path, x)
        elif suffix == ".npz":
            np.savez(path, frames=x)
        elif suffix == ".mat":
            savemat(path, {"frames": x})
        else:
            np.savetxt(path, x, fmt="%.17g")
    people.table.to_csv(folder / "participants.tsv", sep="\t", index=False)
    people.atlas.rois.to_csv(folder.parent / "atlas.csv", index=False)


@pytest.mark.parametrize("suffix", [".npy", *mark_long([".tsv", ".npz", ".mat", ".txt", ".1D"])])
def test_the_format_of_files_decides_nothing(suffix, tmp_path):
    people, folders = BUILDERS["3 sites"](), []
    for kind in (".csv", suffix):
        write_files(people, tmp_path / kind, kind)
        cohort = tmp_path / f"cohort{kind}"
        brio.import_cohort("table", tmp_path / kind, out=cohort, atlas_table=tmp_path / "atlas.csv")
        folders.append(new_folder())
        settings = {"choose_by": "source-sites", "protocol.validation_sites": 0}
        methods = ["ridge", "log-ridge", "brio-plus"]
        brio.run(cohort, methods, out=folders[-1], settings=settings, exclude=False, device="cpu")
    compare_margins(*folders, people, people, {})


def test_threads_decide_nothing():
    people, before = BUILDERS["dead region"](), torch.get_num_threads()
    first = run_job("dead region", *DETERMINISTIC, settings=WITHOUT_A_DRAW)
    try:
        torch.set_num_threads(2 if before == 1 else 1)
        second = run_job("dead region", *DETERMINISTIC, settings=(*WITHOUT_A_DRAW, ("least_penalty", 0.1)))
    finally:
        torch.set_num_threads(before)
    compare_margins(first, second, people, people, ITERATIVE)


@pytest.mark.parametrize("methods", [("ridge", "brio-plus", "gcn")])
def test_a_repeated_command_writes_the_same_bytes(methods, tmp_path):
    first = run_job("3 sites", *methods)
    cohort = tmp_path / "cohort"
    BUILDERS["3 sites"]().to_cohort().save(cohort)
    words = [word for method in methods for word in ("--method", method)]
    values = {key: value for method in methods for key, value in shrink(method).items()}
    words += [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    for out in ("one", "two"):
        command("run", cohort, *words, "--keep-all", "--device", "cpu", "--out", tmp_path / out).succeed()
    for file in ("predictions.csv", "sites.csv", "covariances.csv"):
        contents = {(folder / file).read_bytes() for folder in (first, tmp_path / "one", tmp_path / "two")}
        assert len(contents) == 1
