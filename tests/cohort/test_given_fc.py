"""Connectomes without frames: imported, evaluated as the scans they came from, refused where frames are needed."""

import shutil

import numpy as np
import pandas as pd
import pytest
from file_layouts import refuse

import brio
from brio import BrioError, Cohort
from brio.cohort import audit, format_audit
from brio.cohort.readers import import_cohort, read_scans_to_predict
from brio.cohort.scans import convert_fc, find_measure
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.jobs import JobSpec
from brio.models import fit_model


@pytest.fixture(scope="module")
def scans() -> Cohort:
    """Scans of five sites; some have an ROI without signal."""
    return simulate(Simulation(n_sites=5, per_class=3, n_rois=8, frames=60))


@pytest.fixture(scope="module")
def z(scans) -> np.ndarray:
    return Connectomes(scans).full.numpy()


@pytest.fixture
def files(scans, z, tmp_path):
    """Write matrices in some form, with the participants table; returns the folder."""

    def write(form: str):
        folder = tmp_path / form
        folder.mkdir()
        for name, one in zip(scans.ids, z, strict=True):
            r = np.tanh(one.astype(np.float64))
            np.fill_diagonal(r, 1.0)
            r[~one.any(axis=1)] = r[:, ~one.any(axis=1)] = np.nan  # as numpy.corrcoef gives it
            if form == "csv":
                names = [f"area{k}" for k in range(len(r))]
                pd.DataFrame(r, columns=names).to_csv(folder / f"{name}.csv", index=False, na_rep="nan")
            elif form == "npy":
                np.save(folder / f"{name}.npy", np.where(np.eye(len(r)), np.inf, one))
        if form == "npz":
            np.savez(folder / "all.npz", fc=z, participant_id=scans.ids)
        columns = ["participant_id", "site", "label"]
        scans.participants[columns].to_csv(folder / "participants.tsv", sep="\t", index=False)
        return folder / "all.npz" if form == "npz" else folder

    return write


def test_a_report_says_what_was_not_checked(files, tmp_path):
    """That the margins are those of the scans: tests/ordinary."""
    cohort = import_cohort("fc", files("csv"), tmp_path / "cohort")
    assert "without frames" in repr(cohort)
    page = brio.run(cohort, ["ridge"], device="cpu", out=tmp_path / "fc").report().read_text("utf-8")
    assert "Not checked, because connectomes have no frames" in page
    assert "No duplicate scans" not in page


@pytest.mark.parametrize(("form", "options"), [("npy", {}), ("npz", {"measure": "fisher-z"})])
def test_fisher_z_is_taken_bit_for_bit(form, options, files, scans, z, tmp_path):
    cohort = import_cohort("fc", files(form), tmp_path / "cohort", **options)
    connectomes = Connectomes(cohort)
    np.testing.assert_array_equal(connectomes.full.numpy(), z)
    assert connectomes.alive.equal(Connectomes(scans).alive)
    assert not connectomes.alive.all(), "an ROI without signal is among them"


def test_rois_are_reordered_and_dropped_in_rows_and_columns(files, z, scans, tmp_path):
    folder = files("csv")
    name = scans.ids[3]
    table = pd.read_csv(folder / f"{name}.csv")
    order = np.random.default_rng(0).permutation(8)
    table.iloc[order, order].to_csv(folder / f"{name}.csv", index=False, na_rep="nan")
    rois = pd.DataFrame({"name": [f"area{k}" for k in range(8)], "network": "one"})
    rois.to_csv(tmp_path / "rois.tsv", sep="\t", index=False)
    options = {"atlas_table": tmp_path / "rois.tsv", "drop_roi": ["area5"]}
    cohort = import_cohort("fc", folder, tmp_path / "cohort", **options)
    keep = np.delete(np.arange(8), 5)
    np.testing.assert_allclose(cohort.scan(3), z[3][np.ix_(keep, keep)], atol=1e-5)
    assert cohort.atlas.rois["name"].tolist() == [f"area{k}" for k in keep]
    assert set(cohort.atlas.rois["network"]) == {"one"}


def test_methods_that_need_frames_are_refused_with_the_reason_and_those_that_work(files, tmp_path):
    cohort = import_cohort("fc", files("npy"), tmp_path / "cohort")
    for name, reason in [
        ("brio", "re-estimating connectomes"),
        ("deci", "BOLD"),
        ("length-only", "the length of each scan"),
    ]:
        with pytest.raises(BrioError, match=rf"method '{name}' .*{reason}.* use one of ridge, .*gcn") as caught:
            brio.run(cohort, [name], device="cpu", out=tmp_path / "job")
        assert name not in str(caught.value).split("use one of ")[1].split(", ")
    refuse(
        r"such as --set shrinkage=0\.1",
        brio.run,
        cohort,
        ["tangent-ridge"],
        device="cpu",
        out=tmp_path / "job",
    )
    assert not (tmp_path / "job").exists()
    refuse(
        r"a model needs frames, .*'brio import table'\)$",
        read_scans_to_predict,
        tmp_path / "cohort",
        tmp_path / "scans",
    )
    with pytest.raises(
        BrioError, match="a model with prediction intervals, which come from re-estimates, needs frames, but cohort"
    ):
        fit_model(JobSpec(cohort, ["ridge"], device="cpu"))
    refuse("re-estimating connectomes .*needs frames.* or use methods that need only", Connectomes(cohort).scan, 0)
    model = brio.BrioClassifier("ridge", device="cpu", random_state=0).fit(cohort)
    assert model.predict(cohort).shape == (len(cohort),)
    refuse("need frames, which connectomes lack", model.predict_interval, cohort)


def test_the_audit_finds_what_it_can_and_names_the_rest(files, scans, tmp_path):
    folder = files("npy")
    np.save(folder / f"{scans.ids[7]}.npy", np.load(folder / f"{scans.ids[2]}.npy"))
    result = audit(import_cohort("fc", folder, tmp_path / "cohort"))
    assert [(pair.first, pair.second) for pair in result.duplicates] == [tuple(sorted(scans.ids[[2, 7]]))]
    assert set(result.exclusions) == set(scans.ids[[2, 7]]), "8 rows are no short scan"
    assert {d.participant_id for d in result.dead_rois} == {d.participant_id for d in audit(scans).dead_rois}
    text = format_audit(result)
    assert "Not checked, because connectomes have no frames" in text
    assert "Scan length" not in text
    assert result.to_dict()["not_checked"]
    assert "not_checked" not in audit(scans).to_dict()


R = np.corrcoef(np.random.default_rng(0).normal(size=(5, 40)))


@pytest.mark.parametrize(
    ("edge", "value", "message"),
    [
        (([0], [1]), 0.9, "is not symmetric"),
        (([0, 1], [1, 0]), np.nan, "row 1, column 2 has no finite value; only whole ROIs"),
        (([0, 1], [1, 0]), 1.5, "contains 1.5, which cannot be a correlation; use --measure fisher-z"),
    ],
)
def test_matrices_that_are_no_connectomes(edge, value, message):
    changed = R.copy()
    changed[edge] = value
    refuse(f"p1.csv: .*{message}", convert_fc, changed, "correlation", "p1.csv")


def test_the_measure_is_found_where_the_matrix_tells():
    assert find_measure(R, "p1.csv") == "correlation"
    z = np.arctanh(np.where(np.eye(5), 0, R))
    assert find_measure(np.where(np.eye(5), np.inf, z), "p1.csv") == "fisher-z"
    assert find_measure(3 * z / np.abs(z).max(), "p1.csv") == "fisher-z"
    refuse(r"p1\.csv: may contain .* --measure correlation or --measure fisher-z", find_measure, z / 10, "p1.csv")


def invert(covariance: np.ndarray) -> np.ndarray:
    """Compute partial correlations. Shape [P, P]."""
    precision = np.linalg.pinv(covariance)
    scale = np.sqrt(np.diag(precision))
    partial = -precision / np.outer(scale, scale)
    np.fill_diagonal(partial, 1.0)
    return partial


def test_partial_correlations_of_real_scans_are_refused_and_full_ones_never(abide_folder):
    """Full ones of all frames, of few, shrunk, and without the mean over regions; partial ones of each but the last."""
    from sklearn.covariance import ledoit_wolf

    with np.load(abide_folder / "aal116.npz", allow_pickle=False) as packed:
        frames, ends = packed["frames"], np.cumsum(packed["n_frames"])
    for first, end in list(zip([0, *ends], ends, strict=False))[::60]:
        scan = frames[first:end].astype(float)
        scan = scan[:, (scan.std(0) > 0) & (scan[:40].std(0) > 0)]
        scan = (scan - scan.mean(0)) / scan.std(0)
        r = np.corrcoef(scan.T)
        shrunk = ledoit_wolf(scan, assume_centered=True)[0]
        full = [r, np.corrcoef(scan[:40].T), r.round(2), shrunk / np.diag(shrunk)[0], r[:20, :20], r[:3, :3]]
        full.append(np.corrcoef((scan - scan.mean(1, keepdims=True)).T))
        partial = [invert(one) for one in (r, shrunk, r + 0.1 * np.eye(len(r)), r + 10 * np.eye(len(r)))]
        partial.append(partial[1].round(3))
        for measure, scale in (
            ("correlation", lambda one: one),
            ("fisher-z", lambda one: np.arctanh(one * (1 - 1e-7))),
        ):
            for one in full:
                convert_fc(scale(one), measure, "fc")
            for one in partial:
                refuse("fc: contains partial correlations", convert_fc, scale(one), measure, "fc")


def test_a_folder_of_partial_correlations_is_refused_by_name(scans, files, tmp_path):
    folder = files("csv")
    shutil.rmtree(folder)
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in scans.ids:
        frames = rng.normal(size=(90, 30)) @ (np.eye(30) + rng.normal(size=(30, 30)))
        np.save(folder / f"{name}.npy", invert(np.cov(frames.T)))
    columns = ["participant_id", "site", "label"]
    scans.participants[columns].to_csv(folder / "participants.tsv", sep="\t", index=False)
    with pytest.raises(BrioError, match=r"\.npy.*partial correlations.*ConnectivityMeasure"):
        import_cohort("fc", folder, tmp_path / "cohort")
    assert not (tmp_path / "cohort").exists()
