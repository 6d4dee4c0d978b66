"""Scans with regions in rows are recognised without an atlas, and scans of noise are taken as they are."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from file_layouts import refuse, write_study

from brio import Cohort
from brio.cohort.readers import import_cohort
from brio.cohort.scans import are_transposed
from brio.cohort.simulate import Simulation, simulate

N_FRAMES = 90


@pytest.fixture(scope="module")
def scans() -> list[np.ndarray]:
    """Scans of one length, of regions that correlate."""
    cohort = simulate(Simulation(n_sites=2, per_class=6, n_rois=24, frames=140))
    return [cohort.scan(i)[:N_FRAMES] for i in range(len(cohort))]


def build(scans: list[np.ndarray], **options) -> Cohort:
    n = len(scans)
    return Cohort.from_scans(scans, site=["A", "B"] * (n // 2), label=[0] * (n // 2) + [1] * (n // 2), **options)


def write_scans(src: Path, scans: list[np.ndarray]) -> Path:
    names = [f"p{i:02d}" for i in range(len(scans))]
    return write_study(src, names, lambda _, path: np.save(f"{path}.npy", scans[int(path.name[1:])]))


def test_regions_in_rows_are_refused_unless_they_are_said_to_be_frames(scans, tmp_path):
    turned = [scan.T for scan in scans]
    assert build(scans).n_rois == 24
    refuse(r"the 24 rows of the scans seem to be ROIs, .* transpose the scans", build, turned)
    assert build(turned, check_axes=False).n_rois == N_FRAMES
    src = write_scans(tmp_path / "turned", turned)
    refuse(r"p00\.npy: .*24 rows.*--frames-in-rows", import_cohort, "table", src, tmp_path / "out")
    assert import_cohort("table", src, tmp_path / "out", frames_in_rows=True).n_rois == N_FRAMES
    assert import_cohort("table", write_scans(tmp_path / "right", scans), tmp_path / "out2").n_rois == 24


@pytest.mark.parametrize("shape", [(12, 12), (20, 40), (40, 12), (60, 60)])
def test_noise_is_never_taken_for_transposed(shape):
    for seed, n in itertools.product(range(4), (6, 12)):
        rng = np.random.default_rng([seed, n, *shape])
        scans = rng.normal(size=(n, *shape))
        assert not are_transposed(list(scans))
        assert not are_transposed(list(scans.cumsum(axis=1)))  # smooth over time
        shared = scans + rng.normal(size=shape)  # a task that all participants do
        assert min(shape) < 20 or not are_transposed(list(shared))


def test_symmetric_matrices_are_no_scans(scans):
    """Files of them: tests/ordinary."""
    for make in (np.cov, lambda x: np.linalg.inv(np.cov(x) + np.eye(len(x))), lambda x: np.cov(x) - np.eye(len(x))):
        refuse("square symmetric matrix", build, [make(scan.T) for scan in scans])


@pytest.mark.abide
@pytest.mark.parametrize(("atlas", "n_frames"), [("aal116", 78), ("cc200", 196)])
def test_real_scans_are_told_from_transposed_ones(atlas, n_frames, abide_folder):
    with np.load(abide_folder / f"{atlas}.npz") as packed:
        frames, lengths = packed["frames"], packed["n_frames"]
    starts = np.cumsum(lengths) - lengths
    long = np.flatnonzero(lengths >= n_frames)
    for draw in range(2):
        chosen = np.random.default_rng(draw).choice(long, 12, replace=False)
        scans = [frames[starts[i] : starts[i] + n_frames].astype(np.float32) for i in chosen]
        assert not are_transposed(scans)
        assert are_transposed([scan.T for scan in scans])
