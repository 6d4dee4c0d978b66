"""REST-meta-MDD's ROI signals."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from file_layouts import refuse
from scipy.io import savemat

from brio import BrioError
from brio.cohort.readers import import_cohort
from brio.cohort.readers.releases import ATLAS_COLUMNS

IDS = ["S1-1-0001", "S1-2-0001", "S20-1-0007", "S20-2-0003"]


def signals(n: int = 1833, n_frames: int = 6) -> np.ndarray:
    """Each cell tells its column (from 1) and its frame."""
    return np.arange(1, n + 1) + 0.1 * np.arange(n_frames)[:, None]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    src = tmp_path / "mdd"
    folder = src / "Results" / "ROISignals_FunImgARCWF"
    folder.mkdir(parents=True)
    for participant in IDS[:2]:
        savemat(folder / f"ROISignals_{participant}.mat", {"ROISignals": signals()})
    with h5py.File(folder / f"ROISignals_{IDS[2]}.mat", "w") as file:
        file["ROISignals"] = signals().T
    np.savetxt(folder / f"ROISignals_{IDS[3]}.txt", signals())
    return src


def folder(src: Path) -> Path:
    return src / "Results" / "ROISignals_FunImgARCWF"


@pytest.mark.parametrize(("atlas", "span"), ATLAS_COLUMNS.items())
def test_columns_of_each_atlas(tree, tmp_path, atlas, span):
    cohort = import_cohort("dpabi", tree, tmp_path / "out", atlas=atlas)
    assert cohort.ids.tolist() == IDS
    assert cohort.sites.tolist() == ["S1", "S1", "S20", "S20"]
    assert cohort.labels.tolist() == [1, 0, 1, 0]
    assert cohort.classes == ("HC", "MDD")
    for i in range(4):
        np.testing.assert_allclose(cohort.scan(i)[0], np.arange(span[0], span[1] + 1), rtol=1e-6)
    assert cohort.atlas.name == atlas
    assert cohort.atlas.has_coordinates == (atlas in ("aal116", "cc200"))


def test_ranges_cover_the_release_without_the_global_signal():
    covered = [c for first, last in ATLAS_COLUMNS.values() for c in range(first, last + 1)]
    assert sorted([*covered, 1569]) == list(range(1, 1834))
    assert {a: last - first + 1 for a, (first, last) in ATLAS_COLUMNS.items()} == {
        "aal116": 116,
        "ho-cortical": 96,
        "ho-subcortical": 16,
        "cc200": 200,
        "zalesky980": 980,
        "dosenbach160": 160,
        "power264": 264,
    }


def test_alias_and_unknown_atlas(tree, tmp_path):
    assert import_cohort("dpabi", tree, tmp_path / "a", atlas="AAL").atlas.name == "aal116"
    refuse(r"'power246', did you mean 'power264'", import_cohort, "dpabi", tree, tmp_path / "b", atlas="power246")


@pytest.mark.parametrize(
    ("atlas", "n", "fine"), [("aal116", 1568, True), ("power264", 1569, False), ("aal116", 200, False)]
)
def test_older_files(tree, tmp_path, atlas, n, fine):
    savemat(folder(tree) / f"ROISignals_{IDS[1]}.mat", {"ROISignals": signals(n)})
    if fine:
        assert len(import_cohort("dpabi", tree, tmp_path / "out", atlas=atlas)) == 4
        return
    with pytest.raises(BrioError, match=rf"ROISignals_{IDS[1]}\.mat: has {n} columns, {atlas} is in columns"):
        import_cohort("dpabi", tree, tmp_path / "out", atlas=atlas)
    assert not list(tmp_path.glob("out*"))


def test_text_beside_mat_is_a_copy_and_odd_names_are_told(tree, tmp_path):
    np.savetxt(folder(tree) / f"ROISignals_{IDS[0]}.txt", -signals())
    savemat(folder(tree) / "ROISignals_S2-3-0001.mat", {"ROISignals": signals()})
    savemat(folder(tree) / "ROISignals_pilot.mat", {"ROISignals": signals()})
    cohort = import_cohort("dpabi", tree, tmp_path / "out", atlas="aal116")
    assert cohort.scan(0)[0, 0] == 1
    reasons = {s["participant_id"]: s["reason"] for s in cohort.provenance["skipped"]}
    assert reasons.keys() == {"S2-3-0001", "ROISignals_pilot"}
    assert "neither 1" in reasons["S2-3-0001"]


def test_two_folders_are_ambiguous(tree, tmp_path):
    other = tree / "Results" / "ROISignals_FunImgARglobalCWF"
    other.mkdir()
    savemat(other / f"ROISignals_{IDS[0]}.mat", {"ROISignals": signals()})
    refuse(f"participant {IDS[0]} is also at", import_cohort, "dpabi", tree, tmp_path / "out", atlas="aal116")


def test_covariates(tree, tmp_path):
    table = tree / "covariates.csv"
    table.write_text("ID,Age,Sex,site\nS1-1-0001,30,1,x\nS1-2-0001,,2,x\nS20-1-0007,41,1,y\nS9-1-0001,50,1,z\n")
    cohort = import_cohort("dpabi", tree, tmp_path / "out", atlas="aal116", participants="covariates.csv")
    assert cohort.sites.tolist() == ["S1", "S1", "S20", "S20"]
    assert cohort.participants["site_in_source"].tolist()[:3] == ["x", "x", "y"]
    np.testing.assert_array_equal(cohort.participants["age"], [30, np.nan, 41, np.nan])
    assert cohort.provenance["renamed_columns"] == {"age": "Age", "sex": "Sex"}
    assert [s["participant_id"] for s in cohort.provenance["skipped"]] == ["S9-1-0001"]
    assert cohort.provenance["without_covariates"] == ["S20-2-0003"]
    table.write_text("name,Age\nS1-1-0001,30\n")
    with pytest.raises(BrioError, match=r"no column of identifiers .*it has name, Age; --id-column can name another"):
        import_cohort("dpabi", tree, tmp_path / "out2", atlas="aal116", participants=table)
    cohort = import_cohort("dpabi", tree, tmp_path / "out2", atlas="aal116", participants=table, id_column="name")
    np.testing.assert_array_equal(cohort.participants["age"], [30, np.nan, np.nan, np.nan])
    with pytest.raises(BrioError, match=r"--id-column names a column .* give the table with --participants"):
        import_cohort("dpabi", tree, tmp_path / "out3", atlas="aal116", id_column="name")
    assert not list(tmp_path.glob("out3*"))


def test_wrong_variable_and_empty_folder(tree, tmp_path):
    savemat(folder(tree) / f"ROISignals_{IDS[1]}.mat", {"Signals": signals()})
    message = rf"ROISignals_{IDS[1]}\.mat: has no variable 'ROISignals'"
    refuse(message, import_cohort, "dpabi", tree, tmp_path / "out", atlas="aal116")
    (tmp_path / "none").mkdir()
    refuse(r"no file named ROISignals_", import_cohort, "dpabi", tmp_path / "none", tmp_path / "out", atlas="aal116")
