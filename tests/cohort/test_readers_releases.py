"""Data sets as they are published: ABIDE of the Preprocessed Connectomes Project, REST-meta-MDD, and packed ABIDE."""

import shutil
from hashlib import sha256
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from file_layouts import CODES, refuse
from scipy.io import savemat

from brio import BrioError
from brio.cohort import load_bundled_atlas
from brio.cohort.readers import fetch_abide, import_cohort, summarise_import
from brio.cohort.readers.releases import ATLAS_COLUMNS
from brio.cohort.readers.series import read_series
from brio.cohort.scans import find_live_rois

# ---------------------------------------------------------------- pcp, from the disk and through the fetcher

CSV = "Phenotypic_V1_0b_preprocessed1.csv"


def scan(seed: int, n_rois: int = 116) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(12 + seed, n_rois)).round(4)


def write_1d(path: Path, x: np.ndarray, codes: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(f"#{c}" for c in codes), *("\t".join(map(str, row)) for row in x)]
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode())


def phenotypic(**changes: dict) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "SUB_ID": [1, 2, 3, 4, 5, 6],
            "SITE_ID": ["NORTH", "NORTH", "SOUTH", "SOUTH", "SOUTH", "NORTH"],
            "FILE_ID": ["North_001", "North_002", "no_filename", "South_004", "South_005", "North_006"],
            "DX_GROUP": [1, 2, 1, 2, 1, 2],
            "AGE_AT_SCAN": [10.5, 11, 12, 13, 14, 15],
            "SEX": [1, 2, 1, 2, 1, 2],
            "func_mean_fd": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            "FIQ": [100, -9999, 101, None, 99, 98],
            "EYE_STATUS_AT_SCAN": [1, 2, 1, 2, 1, 1],
            "qc_notes": ["a, b", "", "", "", "", ""],
        }
    )
    return table.assign(**changes)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    src = tmp_path / "release"
    src.mkdir()
    phenotypic().to_csv(src / CSV)
    for i, participant in enumerate(["North_001", "North_002", "South_004", "South_005"]):
        write_1d(src / "cpac" / "filt_global" / f"{participant}_rois_aal.1D", scan(i), CODES)
    write_1d(src / "cpac" / "filt_global" / "Stray_009_rois_aal.1D", scan(9), CODES)
    return src


def test_pcp(release, tmp_path):
    cohort = import_cohort("pcp", release, tmp_path / "out", atlas=None, participants=None)
    assert cohort.ids.tolist() == ["North_001", "North_002", "South_004", "South_005"]
    assert cohort.labels.tolist() == [1, 0, 0, 1]
    assert cohort.classes == ("TD", "ASD")
    assert cohort.sites.tolist() == ["NORTH", "NORTH", "SOUTH", "SOUTH"]
    assert cohort.atlas.name == "aal116"
    assert cohort.atlas.has_coordinates
    for i in range(4):
        np.testing.assert_allclose(cohort.scan(i), scan(i), rtol=1e-6)
    table = cohort.participants
    assert table["sex"].tolist() == ["M", "F", "F", "M"]
    assert table["eye_status"].tolist() == ["open", "closed", "closed", "open"]
    assert table["age"].tolist() == [10.5, 11, 13, 14]
    assert table["fiq"].isna().tolist() == [False, True, True, False]
    assert cohort.provenance["kind"] == "pcp"
    assert cohort.provenance["source"] == "release"
    assert cohort.provenance["n_files"] == 4
    reasons = {s["participant_id"]: s["reason"] for s in cohort.provenance["skipped"]}
    assert reasons.keys() == {"3", "North_006", "Stray_009"}
    assert "no_filename" in reasons["3"]
    assert reasons["North_006"] == "no file *_rois_aal.1D"
    assert reasons["Stray_009"] == f"no row in {CSV}"
    assert summarise_import(cohort).startswith("4 scans imported, 3 rows or files skipped: ")


def test_permuted_header_is_put_in_atlas_order(release, tmp_path):
    rng = np.random.default_rng(3)
    for i, participant in enumerate(["North_001", "South_004"]):  # the first scan too: the atlas sets the order, not it
        shuffled = rng.permutation(116)
        path = release / "cpac" / "filt_global" / f"{participant}_rois_aal.1D"
        write_1d(path, scan(2 * i)[:, shuffled], [CODES[j] for j in shuffled])
    cohort = import_cohort("pcp", release, tmp_path / "out", atlas="aal116")
    np.testing.assert_allclose(cohort.scan(0), scan(0), rtol=1e-6)
    np.testing.assert_allclose(cohort.scan(2), scan(2), rtol=1e-6)


@pytest.mark.parametrize("participant", ["North_001", "South_005"])
def test_unknown_code(release, tmp_path, participant):
    write_1d(release / "cpac" / "filt_global" / f"{participant}_rois_aal.1D", scan(1), ["9999", *CODES[1:]])
    refuse(rf"{participant}_rois_aal\.1D: .*'9999'", import_cohort, "pcp", release, tmp_path / "out")


def test_header_is_required(release, tmp_path):
    path = release / "cpac" / "filt_global" / "North_001_rois_aal.1D"
    path.write_text(path.read_text().partition("\n")[2])
    refuse(r"North_001_rois_aal\.1D: has no header", import_cohort, "pcp", release, tmp_path / "out")


def test_cc200_beside_aal_must_be_chosen(release, tmp_path):
    for i, participant in enumerate(["North_001", "North_002"]):
        path = release / "cpac" / "filt_global" / f"{participant}_rois_cc200.1D"
        write_1d(path, scan(i, 200), [str(u + 1) for u in range(200)])
    refuse("holds the atlases aal, cc200; choose one with --atlas", import_cohort, "pcp", release, tmp_path / "out")
    refuse("no atlas 'cc20', did you mean 'cc200'", import_cohort, "pcp", release, tmp_path / "out", atlas="cc20")
    cohort = import_cohort("pcp", release, tmp_path / "out", atlas="cc200")
    assert (len(cohort), cohort.n_rois, cohort.atlas.name) == (2, 200, "cc200")


def test_two_pipelines_are_ambiguous(release, tmp_path):
    write_1d(release / "cpac" / "nofilt_noglobal" / "North_001_rois_aal.1D", scan(0), CODES)
    refuse(r"North_001_rois_aal\.1D: also at .*--participants", import_cohort, "pcp", release, tmp_path / "out")
    cohort = import_cohort("pcp", release / "cpac" / "filt_global", tmp_path / "out", participants=release / CSV)
    assert len(cohort) == 4
    assert cohort.provenance["options"]["participants"] == CSV


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"DX_GROUP": [1, 3, 1, 2, 1, 2]}, "participant North_002 has DX_GROUP '3'"),
        ({"DX_GROUP": [1, 1, 1, 1, 1, 1]}, "one class only"),
        ({"FILE_ID": ["North_001", "North_001", "x", "South_004", "y", "z"]}, "North_001 appears more than once"),
    ],
)
def test_wrong_table(release, tmp_path, changes, message):
    phenotypic(**changes).to_csv(release / CSV)
    refuse(message, import_cohort, "pcp", release, tmp_path / "out")


def test_missing_column_and_table(release, tmp_path):
    phenotypic().rename(columns={"DX_GROUP": "DX_GRUOP"}).to_csv(release / CSV)
    refuse("no column 'DX_GROUP', did you mean 'DX_GRUOP'", import_cohort, "pcp", release, tmp_path / "out")
    (release / CSV).unlink()
    refuse(r"henotypic.*--participants", import_cohort, "pcp", release, tmp_path / "out")


def dead_roi_fill(calls: list):
    """A fetcher that writes what nilearn would download, where nilearn would put it."""

    def fetch(data_dir: str, derivatives: list[str], **options: object) -> None:
        calls.append({"derivatives": derivatives, **options})
        folder = Path(data_dir) / "ABIDE_pcp"
        folder.mkdir(parents=True)
        phenotypic().to_csv(folder / CSV)
        for i, participant in enumerate(["North_001", "North_002", "South_004", "South_005", "North_006"]):
            write_1d(folder / "cpac" / "filt_global" / f"{participant}_{derivatives[0]}.1D", scan(i), CODES)
        write_1d(folder / "cpac" / "nofilt_noglobal" / f"North_001_{derivatives[0]}.1D", scan(8), CODES)

    return fetch


def test_fetch(tmp_path):
    calls: list = []
    cohort = fetch_abide("aal116", tmp_path / "out", data_dir=tmp_path / "data", fetcher=dead_roi_fill(calls))
    assert len(cohort) == 5
    np.testing.assert_allclose(cohort.scan(0), scan(0), rtol=1e-6)
    (call,) = calls
    assert call["derivatives"] == ["rois_aal"]
    assert call["quality_checked"] is False
    assert (call["pipeline"], call["band_pass_filtering"], call["global_signal_regression"]) == ("cpac", True, True)


def test_fetch_calls_nilearn_with_options_it_has(tmp_path, monkeypatch):
    from inspect import signature

    from nilearn import datasets

    calls: list = []
    accepted = signature(datasets.fetch_abide_pcp)
    monkeypatch.setattr(datasets, "fetch_abide_pcp", dead_roi_fill(calls))
    monkeypatch.setenv("NILEARN_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("NILEARN_SHARED_DATA", raising=False)
    assert len(fetch_abide("aal", tmp_path / "out")) == 5
    assert (tmp_path / "data" / "ABIDE_pcp").is_dir()
    accepted.bind(**calls[0])
    assert calls[0].keys() <= accepted.parameters.keys()


def test_fetch_that_fails(tmp_path):
    def offline(**options: object) -> None:
        raise OSError("no route to host")

    with pytest.raises(BrioError, match=r"download of ABIDE failed \(no route to host\)"):
        fetch_abide("cc200", tmp_path / "out", data_dir=tmp_path, fetcher=offline)
    with pytest.raises(BrioError, match=r"atlas 'cc400'.*did you mean 'cc200'"):
        fetch_abide("cc400", tmp_path / "out", data_dir=tmp_path, fetcher=offline)
    (tmp_path / "out").mkdir()
    refuse("exists already", fetch_abide, "cc200", tmp_path / "out", data_dir=tmp_path, fetcher=offline)


@pytest.mark.abide
def test_genuine_files_agree_with_the_packed_scans(abide_folder):
    files = sorted((abide_folder / "pcp-sample").rglob("*.1D"))
    assert files
    archives = {name: dict(np.load(abide_folder / f"{name}.npz", allow_pickle=False)) for name in ("aal116", "cc200")}
    for path in files:
        participant, _, label = path.stem.partition("_rois_")
        atlas = load_bundled_atlas(label)
        series = read_series(path)
        key = "code" if "code" in atlas.rois else "index"
        assert list(series.columns) == atlas.rois[key].astype(str).tolist()
        packed = archives[atlas.name]
        (i,) = np.flatnonzero(packed["participant_id"] == participant)
        start = packed["n_frames"][:i].sum()
        theirs = packed["frames"][start : start + packed["n_frames"][i]] * packed["scale"][i]
        alive = packed["scale"][i] > 0
        assert theirs.shape == series.frames.shape
        ours = series.frames[:, alive].astype(float)
        corr = [np.corrcoef(a, b)[0, 1] for a, b in zip(ours.T, theirs[:, alive].T, strict=True)]
        assert min(corr) > 0.99


@pytest.mark.abide
def test_genuine_phenotypes_agree_with_the_packed_table(abide_folder, tmp_path):
    sample = abide_folder / "pcp-sample"
    table = pd.read_csv(next(sample.glob("*henotypic*.csv")))
    src = tmp_path / "all"
    (src / "cpac").mkdir(parents=True)
    frames = "#" + "\t#".join(CODES) + "\n" + "\t".join(["1"] * 116) + "\n" + "\t".join(["2"] * 116) + "\n"
    for participant in table.loc[table["FILE_ID"] != "no_filename", "FILE_ID"][::15]:
        (src / "cpac" / f"{participant}_rois_aal.1D").write_text(frames)
    cohort = import_cohort("pcp", src, tmp_path / "out", participants=next(sample.glob("*henotypic*.csv")))
    assert len(cohort) == 1035 / 15
    assert sum("no_filename" in entry["reason"] for entry in cohort.provenance["skipped"]) == 77
    ours = cohort.participants.set_index("participant_id")
    packed = pd.read_csv(abide_folder / "participants.tsv", sep="\t").set_index("participant_id").loc[ours.index]
    assert (ours["label"] == packed["diagnosis"]).all()
    for column in ("site", "sex", "eye_status"):
        assert (ours[column] == packed[column]).all(), column
    for column in ("age", "mean_fd", "fiq"):
        np.testing.assert_allclose(ours[column], packed[column], atol=1e-4, err_msg=column)


def test_fetched_files_are_recorded_and_compared(tmp_path):
    record, fetcher = tmp_path / "abide.sha256", dead_roi_fill([])
    fetch_abide("aal", tmp_path / "one", data_dir=tmp_path / "data", digests=record, fetcher=fetcher)
    lines = record.read_text().splitlines()
    assert len(lines) == 6  # five scans of this atlas, and the phenotypes
    name = lines[1].split("  ")[1]
    digest = sha256((tmp_path / "data" / "ABIDE_pcp" / name).read_bytes()).hexdigest()
    assert lines[1] == f"{digest}  {name}"
    again = {"data_dir": tmp_path / "more", "digests": record, "fetcher": fetcher}
    assert len(fetch_abide("aal", tmp_path / "two", **again)) == 5
    for damage, message in [
        (lambda text: text.replace(digest, "0" * 64), f"{name}: differs from the digest in"),
        (lambda text: text.replace(f"{digest}  {name}\n", ""), f"has no digest of {name}"),
        (lambda text: "not a digest\n" + text, "line 1: is no digest"),
    ]:
        record.write_text(damage("\n".join(lines) + "\n"))
        shutil.rmtree(tmp_path / "more")
        with pytest.raises(BrioError, match=message):
            fetch_abide("aal", tmp_path / "three", **again)
        assert not (tmp_path / "three").exists()


# ---------------------------------------------------------------- dpabi

MDD_IDS = ["S1-1-0001", "S1-2-0001", "S20-1-0007", "S20-2-0003"]


def signals(n: int = 1833, n_frames: int = 6) -> np.ndarray:
    """Each cell tells its column (from 1) and its frame."""
    return np.arange(1, n + 1) + 0.1 * np.arange(n_frames)[:, None]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    src = tmp_path / "mdd"
    signals_folder = src / "Results" / "ROISignals_FunImgARCWF"
    signals_folder.mkdir(parents=True)
    for participant in MDD_IDS[:2]:
        savemat(signals_folder / f"ROISignals_{participant}.mat", {"ROISignals": signals()})
    with h5py.File(signals_folder / f"ROISignals_{MDD_IDS[2]}.mat", "w") as file:
        file["ROISignals"] = signals().T
    np.savetxt(signals_folder / f"ROISignals_{MDD_IDS[3]}.txt", signals())
    return src


def signals_folder(src: Path) -> Path:
    return src / "Results" / "ROISignals_FunImgARCWF"


@pytest.mark.parametrize("atlas", ["aal116", "ho-subcortical", "power264"])
def test_columns_of_an_atlas(results, tmp_path, atlas):
    span = ATLAS_COLUMNS[atlas]
    cohort = import_cohort("dpabi", results, tmp_path / "out", atlas=atlas)
    assert cohort.ids.tolist() == MDD_IDS
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


def test_alias_and_unknown_atlas(results, tmp_path):
    assert import_cohort("dpabi", results, tmp_path / "a", atlas="AAL").atlas.name == "aal116"
    refuse(r"'power246', did you mean 'power264'", import_cohort, "dpabi", results, tmp_path / "b", atlas="power246")


@pytest.mark.parametrize(
    ("atlas", "n", "fine"), [("aal116", 1568, True), ("power264", 1569, False), ("aal116", 200, False)]
)
def test_older_files(results, tmp_path, atlas, n, fine):
    savemat(signals_folder(results) / f"ROISignals_{MDD_IDS[1]}.mat", {"ROISignals": signals(n)})
    if fine:
        assert len(import_cohort("dpabi", results, tmp_path / "out", atlas=atlas)) == 4
        return
    with pytest.raises(BrioError, match=rf"ROISignals_{MDD_IDS[1]}\.mat: has {n} columns, {atlas} is in columns"):
        import_cohort("dpabi", results, tmp_path / "out", atlas=atlas)
    assert not list(tmp_path.glob("out*"))


def test_text_beside_mat_is_a_copy_and_odd_names_are_told(results, tmp_path):
    np.savetxt(signals_folder(results) / f"ROISignals_{MDD_IDS[0]}.txt", -signals())
    savemat(signals_folder(results) / "ROISignals_S2-3-0001.mat", {"ROISignals": signals()})
    savemat(signals_folder(results) / "ROISignals_pilot.mat", {"ROISignals": signals()})
    cohort = import_cohort("dpabi", results, tmp_path / "out", atlas="aal116")
    assert cohort.scan(0)[0, 0] == 1
    reasons = {s["participant_id"]: s["reason"] for s in cohort.provenance["skipped"]}
    assert reasons.keys() == {"S2-3-0001", "ROISignals_pilot"}
    assert "neither 1" in reasons["S2-3-0001"]


def test_two_folders_are_ambiguous(results, tmp_path):
    other = results / "Results" / "ROISignals_FunImgARglobalCWF"
    other.mkdir()
    savemat(other / f"ROISignals_{MDD_IDS[0]}.mat", {"ROISignals": signals()})
    refuse(f"participant {MDD_IDS[0]} is also at", import_cohort, "dpabi", results, tmp_path / "out", atlas="aal116")


def test_covariates(results, tmp_path):
    table = results / "covariates.csv"
    table.write_text("ID,Age,Sex,site\nS1-1-0001,30,1,x\nS1-2-0001,,2,x\nS20-1-0007,41,1,y\nS9-1-0001,50,1,z\n")
    cohort = import_cohort("dpabi", results, tmp_path / "out", atlas="aal116", participants="covariates.csv")
    assert cohort.sites.tolist() == ["S1", "S1", "S20", "S20"]
    assert cohort.participants["site_in_source"].tolist()[:3] == ["x", "x", "y"]
    np.testing.assert_array_equal(cohort.participants["age"], [30, np.nan, 41, np.nan])
    assert cohort.provenance["renamed_columns"] == {"age": "Age", "sex": "Sex"}
    assert [s["participant_id"] for s in cohort.provenance["skipped"]] == ["S9-1-0001"]
    assert cohort.provenance["without_covariates"] == ["S20-2-0003"]
    table.write_text("name,Age\nS1-1-0001,30\n")
    with pytest.raises(BrioError, match=r"no column of identifiers .*it has name, Age; --id-column can name another"):
        import_cohort("dpabi", results, tmp_path / "out2", atlas="aal116", participants=table)
    cohort = import_cohort("dpabi", results, tmp_path / "out2", atlas="aal116", participants=table, id_column="name")
    np.testing.assert_array_equal(cohort.participants["age"], [30, np.nan, np.nan, np.nan])
    with pytest.raises(BrioError, match=r"--id-column names a column .* give the table with --participants"):
        import_cohort("dpabi", results, tmp_path / "out3", atlas="aal116", id_column="name")
    assert not list(tmp_path.glob("out3*"))


def test_wrong_variable_and_empty_folder(results, tmp_path):
    savemat(signals_folder(results) / f"ROISignals_{MDD_IDS[1]}.mat", {"Signals": signals()})
    message = rf"ROISignals_{MDD_IDS[1]}\.mat: has no variable 'ROISignals'"
    refuse(message, import_cohort, "dpabi", results, tmp_path / "out", atlas="aal116")
    (tmp_path / "none").mkdir()
    refuse(r"no file named ROISignals_", import_cohort, "dpabi", tmp_path / "none", tmp_path / "out", atlas="aal116")


# ---------------------------------------------------------------- packed

PACKED_IDS = np.array(["a_001", "a_002", "b_001", "b_002"])
LENGTHS = np.array([30, 25, 40, 30], dtype=np.int32)


def arrays(n_rois: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n_rois)
    scale = rng.uniform(0.01, 0.03, size=(4, n_rois)).astype(np.float32)
    frames = rng.integers(-127, 128, size=(LENGTHS.sum(), n_rois)).astype(np.int8)
    return {"frames": frames, "scale": scale, "n_frames": LENGTHS, "participant_id": PACKED_IDS}


def people() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "participant_id": PACKED_IDS,
            "site": ["A", "A", "B", "B"],
            "diagnosis": [1, 0, 0, 1],
            "age": [10, 11, 12, 13],
            "n_frames": LENGTHS,
            "dead_rois_aal": [7, 7, 7, 7],
            "fiq": [100, None, 101, 102],
            "tr_s": [2.0, 2.0, 1.5, 1.5],
        }
    )


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    src = tmp_path / "packed"
    src.mkdir()
    people().to_csv(src / "participants.tsv", sep="\t", index=False)
    aal, cc200 = arrays(116), arrays(200)
    aal["scale"][1, :29] = 0
    cc200["frames"][30 + 25 : 30 + 25 + 40, :50] = 5  # flat, though not zero
    np.savez(src / "aal116.npz", **aal)
    np.savez(src / "cc200.npz", **cc200)
    return src


def rewrite(archives: Path, **changes: np.ndarray) -> None:
    np.savez(archives / "aal116.npz", **{**arrays(116), **changes})


@pytest.mark.parametrize(("asked", "atlas", "n_rois"), [("aal", "aal116", 116), ("cc200", "cc200", 200)])
def test_packed(archives, tmp_path, asked, atlas, n_rois):
    cohort = import_cohort("packed", archives, tmp_path / "out", atlas=asked)
    assert (cohort.atlas.name, cohort.n_rois) == (atlas, n_rois)
    assert cohort.atlas.has_coordinates
    assert cohort.labels.tolist() == [1, 0, 0, 1]
    assert cohort.classes == ("TD", "ASD")
    packed = np.load(archives / f"{atlas}.npz")
    np.testing.assert_array_equal(cohort.scan(2), packed["frames"][55:95] * packed["scale"][2])
    assert cohort.n_frames.tolist() == LENGTHS.tolist()
    table = cohort.participants
    np.testing.assert_allclose(table["dead_fraction_aal116"], [0, 29 / 116, 0, 0], atol=1e-6)
    np.testing.assert_allclose(table["dead_fraction_cc200"], [0, 0, 50 / 200, 0], atol=1e-6)
    assert table["tr"].tolist() == [2.0, 2.0, 1.5, 1.5]
    assert table["age"].tolist() == [10, 11, 12, 13]
    assert table["fiq"].isna().tolist() == [False, True, False, False]
    assert not {"dead_rois_aal", "diagnosis", "tr_s"} & set(table.columns)


def test_a_packed_atlas_must_be_chosen(archives, tmp_path):
    refuse("holds the atlases aal116, cc200; choose one", import_cohort, "packed", archives, tmp_path / "out")
    (archives / "cc200.npz").unlink()
    assert import_cohort("packed", archives, tmp_path / "out").n_rois == 116


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"participant_id": PACKED_IDS[[1, 0, 2, 3]]}, "participant 1 is a_002, but a_001 in participants.tsv"),
        ({"participant_id": PACKED_IDS[:3]}, "has 3 participants, participants.tsv has 4"),
        ({"n_frames": LENGTHS[::-1]}, "a_002 has 40 frames, but 25"),
        ({"n_frames": LENGTHS + 1}, "a_001 has 31 frames, but 30 in participants.tsv"),
        ({"frames": arrays(116)["frames"][:-1]}, "do not fit together"),
        ({"scale": arrays(200)["scale"]}, "do not fit together"),
        ({"frames": arrays(90)["frames"], "scale": arrays(90)["scale"]}, "has 90 columns, atlas aal116 has 116 ROIs"),
    ],
)
def test_parts_that_disagree(archives, tmp_path, changes, message):
    rewrite(archives, **changes)
    refuse(message, import_cohort, "packed", archives, tmp_path / "out", atlas="aal116")


def test_damaged_archive_and_table(archives, tmp_path):
    whole = (archives / "cc200.npz").read_bytes()
    (archives / "cc200.npz").write_bytes(whole[: len(whole) // 2])
    refuse(r"cc200\.npz: cannot be read as npz", import_cohort, "packed", archives, tmp_path / "out", atlas="aal116")
    (archives / "cc200.npz").unlink()
    people().assign(diagnosis=[1, 0, 2, 1]).to_csv(archives / "participants.tsv", sep="\t", index=False)
    refuse("participant b_001 has diagnosis '2'", import_cohort, "packed", archives, tmp_path / "out", atlas="aal116")
    np.savez(archives / "aal116.npz", x=np.zeros(3))
    people().to_csv(archives / "participants.tsv", sep="\t", index=False)
    with pytest.raises(BrioError, match=r"aal116\.npz: has no array 'frames'; it has x"):
        import_cohort("packed", archives, tmp_path / "out", atlas="aal116")


@pytest.mark.abide
@pytest.mark.soak
def test_genuine_scans(abide_folder, tmp_path):
    cohort = import_cohort("packed", abide_folder, tmp_path / "abide", atlas="aal116")
    assert (len(cohort), cohort.n_rois, len(set(cohort.sites))) == (1035, 116, 20)
    assert np.bincount(cohort.labels).tolist() == [530, 505]
    assert (cohort.n_frames.min(), cohort.n_frames.max()) == (78, 316)
    released = pd.read_csv(abide_folder / "participants.tsv", sep="\t")
    table = cohort.participants
    np.testing.assert_array_equal((table["dead_fraction_aal116"] * 116).round(), released["dead_rois_aal"])
    np.testing.assert_array_equal((table["dead_fraction_cc200"] * 200).round(), released["dead_rois_cc200"])
    worst = int(table["dead_fraction_aal116"].argmax())
    assert (~find_live_rois(cohort.scan(worst))).sum() == 65
    cohort.verify()
