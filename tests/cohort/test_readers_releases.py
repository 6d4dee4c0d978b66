"""Data sets as they are published: ABIDE of the Preprocessed Connectomes Project, REST-meta-MDD, and packed ABIDE."""

import shutil
from functools import partial
from hashlib import sha256
from inspect import signature
from pathlib import Path
from unittest.mock import Mock

import h5py
import numpy as np
import pandas as pd
import pytest
from file_layouts import CODES, check, check_scans, list_skipped, refuse, refuse_import, write_layout, write_text
from scipy.io import savemat

from brio import Cohort
from brio.cohort import load_bundled_atlas
from brio.cohort.readers import fetch_abide, import_cohort, summarise_import
from brio.cohort.readers.releases import ATLAS_COLUMNS
from brio.cohort.readers.series import read_series
from commands import command

# ---------------------------------------------------------------- pcp, from the disk and through the fetcher

HEADER = [f"#{code}" for code in CODES]
SERIES = Path("cpac") / "filt_global"
CSV = "Phenotypic_V1_0b_preprocessed1.csv"


def scan(seed: int, n_rois: int = 116) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(12 + seed, n_rois)).round(4)


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
        write_text(src / SERIES / f"{participant}_rois_aal.1D", scan(i), HEADER)
    write_text(src / SERIES / "Stray_009_rois_aal.1D", scan(9), HEADER)
    return src


def test_pcp(release, tmp_path):
    cohort = import_cohort("pcp", release, tmp_path / "out", atlas=None, participants=None)
    check(cohort, ids=["North_001", "North_002", "South_004", "South_005"], labels=[1, 0, 0, 1], classes=("TD", "ASD"))
    check(cohort, sites=["NORTH", "NORTH", "SOUTH", "SOUTH"], sex=["M", "F", "F", "M"], age=[10.5, 11, 13, 14])
    check(cohort, eye_status=["open", "closed", "closed", "open"], fiq=[100, np.nan, np.nan, 99])
    assert (cohort.atlas.name, cohort.atlas.has_coordinates) == ("aal116", True)
    check_scans(cohort, [scan(i) for i in range(4)])
    assert [cohort.provenance[key] for key in ("kind", "source", "n_files")] == ["pcp", "release", 4]
    assert list_skipped(cohort) == {
        "3": "the release has no scan (FILE_ID is no_filename)",
        "North_006": "no file *_rois_aal.1D",
        "Stray_009": f"no row in {CSV}",
    }
    assert summarise_import(cohort).startswith("4 scans imported, 3 rows or files skipped: ")


def test_permuted_header_is_put_in_atlas_order(release, tmp_path):
    rng = np.random.default_rng(3)
    for i, participant in enumerate(["North_001", "South_004"]):  # the first scan too: the atlas sets the order, not it
        shuffled = rng.permutation(116)
        path = release / SERIES / f"{participant}_rois_aal.1D"
        write_text(path, scan(2 * i)[:, shuffled], [HEADER[j] for j in shuffled])
    cohort = import_cohort("pcp", release, tmp_path / "out", atlas="aal116")
    np.testing.assert_allclose(cohort.scan(0), scan(0), rtol=1e-6)
    np.testing.assert_allclose(cohort.scan(2), scan(2), rtol=1e-6)


def test_unknown_codes_and_files_without_header_are_refused(release, tmp_path):
    for participant in ("South_005", "North_001"):  # the first scan, which is matched with the atlas, and a later one
        write_text(release / SERIES / f"{participant}_rois_aal.1D", scan(1), ["#9999", *HEADER[1:]])
        refuse(rf"{participant}_rois_aal\.1D: .*'9999'", import_cohort, "pcp", release, tmp_path / "out")
    write_text(release / SERIES / "North_001_rois_aal.1D", scan(0), None)
    refuse(r"North_001_rois_aal\.1D: has no header", import_cohort, "pcp", release, tmp_path / "out")


def test_cc200_beside_aal_must_be_chosen(release, tmp_path):
    for i, participant in enumerate(["North_001", "North_002"]):
        path = release / SERIES / f"{participant}_rois_cc200.1D"
        write_text(path, scan(i, 200), [f"#{u + 1}" for u in range(200)])
    refuse(
        "has files of several atlases: aal, cc200; choose one with --atlas",
        import_cohort,
        "pcp",
        release,
        tmp_path / "out",
    )
    refuse(
        "no files of atlas 'cc20'; did you mean 'cc200'", import_cohort, "pcp", release, tmp_path / "out", atlas="cc20"
    )
    cohort = import_cohort("pcp", release, tmp_path / "out", atlas="cc200")
    assert (len(cohort), cohort.n_rois, cohort.atlas.name) == (2, 200, "cc200")


def test_a_folder_without_scans_is_refused(tmp_path):
    (tmp_path / "none").mkdir()
    refuse_import("has no file named <FILE_ID>_rois_<atlas>.1D in or below it", tmp_path / "none", "pcp")
    refuse_import("has no file <atlas>.npz", tmp_path / "none", "packed")


def test_two_pipelines_are_ambiguous(release, tmp_path):
    write_text(release / "cpac" / "nofilt_noglobal" / "North_001_rois_aal.1D", scan(0), HEADER)
    refuse(
        r"North_001_rois_aal\.1D: there is a second file .*--participants",
        import_cohort,
        "pcp",
        release,
        tmp_path / "out",
    )
    cohort = import_cohort("pcp", release / SERIES, tmp_path / "out", participants=release / CSV)
    assert len(cohort) == 4
    assert cohort.provenance["options"]["participants"] == CSV


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"DX_GROUP": [1, 3, 1, 2, 1, 2]}, "participant North_002 has DX_GROUP '3'"),
        ({"DX_GROUP": ["1", None, *"1212"]}, r"participant North_002 has no DX_GROUP; it must be 1 \(autism\) or 2"),
        ({"DX_GROUP": [1, 1, 1, 1, 1, 1]}, "only one class"),
        ({"FILE_ID": ["North_001", "North_001", "x", "South_004", "y", "z"]}, "North_001 appears more than once"),
        ({"DX_GROUP": None, "DX_GRUOP": [1] * 6}, "no column 'DX_GROUP'; did you mean 'DX_GRUOP'"),
    ],
)
def test_wrong_table(release, tmp_path, changes, message):
    table = phenotypic(**{k: v for k, v in changes.items() if v is not None})
    table.drop(columns=[k for k, v in changes.items() if v is None]).to_csv(release / CSV)
    refuse(message, import_cohort, "pcp", release, tmp_path / "out")
    (release / CSV).unlink()
    refuse(r"henotypic.*--participants", import_cohort, "pcp", release, tmp_path / "out")


@pytest.fixture
def downloads(monkeypatch) -> list[dict]:
    """Write what nilearn would download, where nilearn would put it; returns the options of each call."""
    from nilearn import datasets

    calls: list[dict] = []
    accepted = signature(datasets.fetch_abide_pcp)

    def fetch(**options) -> None:
        accepted.bind(**options)
        assert options.keys() <= accepted.parameters.keys()
        calls.append(options)
        folder, (label,) = Path(options["data_dir"]) / "ABIDE_pcp", options["derivatives"]
        folder.mkdir(parents=True)
        phenotypic().to_csv(folder / CSV)
        for i, participant in enumerate(["North_001", "North_002", "South_004", "South_005", "North_006"]):
            write_text(folder / SERIES / f"{participant}_{label}.1D", scan(i), HEADER)
        write_text(folder / "cpac" / "nofilt_noglobal" / f"North_001_{label}.1D", scan(8), HEADER)

    monkeypatch.setattr(datasets, "fetch_abide_pcp", fetch)
    return calls


def test_fetch_calls_nilearn_with_options_it_has(downloads, tmp_path, monkeypatch):
    monkeypatch.setenv("NILEARN_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("NILEARN_SHARED_DATA", raising=False)
    cohort = fetch_abide("aal", tmp_path / "out")
    assert len(cohort) == 5
    np.testing.assert_allclose(cohort.scan(0), scan(0), rtol=1e-6)
    assert (tmp_path / "data" / "ABIDE_pcp").is_dir()
    (call,) = downloads
    assert (call["derivatives"], call["quality_checked"]) == (["rois_aal"], False)
    assert (call["pipeline"], call["band_pass_filtering"], call["global_signal_regression"]) == ("cpac", True, True)


@pytest.mark.usefixtures("downloads")
def test_the_command_says_what_it_fetched(tmp_path):
    words = ("--data-dir", tmp_path / "data", "--out", tmp_path / "out")
    said = command("fetch", "abide", *words).succeed()
    assert "5 scans imported" in said.out
    assert f"to {tmp_path / 'out'}" in said.out
    assert len(Cohort.load(tmp_path / "out")) == 5


def test_fetch_that_fails(tmp_path, monkeypatch):
    monkeypatch.setattr("nilearn.datasets.fetch_abide_pcp", Mock(side_effect=OSError("no route to host")))
    fetch = partial(fetch_abide, data_dir=tmp_path)
    refuse(r"download of ABIDE failed \(no route to host\)", fetch, "cc200", tmp_path / "out")
    refuse("atlas 'cc400'.*did you mean 'cc200'", fetch, "cc400", tmp_path / "out")
    (tmp_path / "out").mkdir()
    refuse("already exists", fetch, "cc200", tmp_path / "out")


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


def test_fetched_files_are_recorded_and_compared(downloads, tmp_path):
    record = tmp_path / "abide.sha256"
    fetch_abide("aal", tmp_path / "one", data_dir=tmp_path / "data", digests=record)
    lines = record.read_text().splitlines()
    assert len(lines) == 6  # five scans of this atlas, and the phenotypes
    name = lines[1].split("  ")[1]
    digest = sha256((tmp_path / "data" / "ABIDE_pcp" / name).read_bytes()).hexdigest()
    assert lines[1] == f"{digest}  {name}"
    again = {"data_dir": tmp_path / "more", "digests": record}
    assert len(fetch_abide("aal", tmp_path / "two", **again)) == 5
    for damage, message in [
        (lambda text: text.replace(digest, "0" * 64), f"{name}: does not match its digest in"),
        (lambda text: text.replace(f"{digest}  {name}\n", ""), f"has no digest of {name}"),
        (lambda text: "not a digest\n" + text, "line 1 is not a digest"),
    ]:
        record.write_text(damage("\n".join(lines) + "\n"))
        shutil.rmtree(tmp_path / "more" / "ABIDE_pcp")
        refuse(message, fetch_abide, "aal", tmp_path / "three", **again)


# ---------------------------------------------------------------- dpabi

SIGNALS = Path("Results") / "ROISignals_FunImgARCWF"
MDD_IDS = ["S1-1-0001", "S1-2-0001", "S20-1-0007", "S20-2-0003"]


def signals(n: int = 1833, n_frames: int = 6) -> np.ndarray:
    """Each cell tells its column (from 1) and its frame."""
    return np.arange(1, n + 1) + 0.1 * np.arange(n_frames)[:, None]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    src = tmp_path / "mdd"
    (src / SIGNALS).mkdir(parents=True)
    for participant in MDD_IDS[:2]:
        savemat(src / SIGNALS / f"ROISignals_{participant}.mat", {"ROISignals": signals()})
    with h5py.File(src / SIGNALS / f"ROISignals_{MDD_IDS[2]}.mat", "w") as file:
        file["ROISignals"] = signals().T
    np.savetxt(src / SIGNALS / f"ROISignals_{MDD_IDS[3]}.txt", signals())
    return src


@pytest.mark.parametrize("atlas", ["aal116", "ho-subcortical", "power264"])
def test_columns_of_an_atlas(results, tmp_path, atlas):
    span = ATLAS_COLUMNS[atlas]
    cohort = import_cohort("dpabi", results, tmp_path / "out", atlas=atlas)
    check(cohort, ids=MDD_IDS, sites=["S1", "S1", "S20", "S20"], labels=[1, 0, 1, 0], classes=("HC", "MDD"))
    for i in range(4):
        np.testing.assert_allclose(cohort.scan(i)[0], np.arange(span[0], span[1] + 1), rtol=1e-6)
    assert cohort.atlas.name == atlas
    assert cohort.atlas.has_coordinates == (atlas in ("aal116", "cc200"))


def test_ranges_cover_the_release_without_the_global_signal():
    covered = [c for first, last in ATLAS_COLUMNS.values() for c in range(first, last + 1)]
    assert sorted([*covered, 1569]) == list(range(1, 1834))
    assert [last - first + 1 for first, last in ATLAS_COLUMNS.values()] == [116, 96, 16, 200, 980, 160, 264]
    assert list(ATLAS_COLUMNS)[0::3] == ["aal116", "cc200", "power264"]


def test_alias_unknown_atlas_and_older_files(results, tmp_path):
    assert import_cohort("dpabi", results, tmp_path / "a", atlas="AAL").atlas.name == "aal116"
    refuse(r"'power246'; did you mean 'power264'", import_cohort, "dpabi", results, tmp_path / "b", atlas="power246")
    older = results / SIGNALS / f"ROISignals_{MDD_IDS[1]}.mat"
    for atlas, n in (("power264", 1569), ("aal116", 200)):
        savemat(older, {"ROISignals": signals(n)})
        refuse_import(
            rf"{older.stem}\.mat: has {n:,} columns, but {atlas} is in columns", results, "dpabi", atlas=atlas
        )
    savemat(older, {"ROISignals": signals(1568)})
    assert len(import_cohort("dpabi", results, tmp_path / "out", atlas="aal116")) == 4


def test_text_beside_mat_is_a_copy_and_odd_names_are_told(results, tmp_path):
    np.savetxt(results / SIGNALS / f"ROISignals_{MDD_IDS[0]}.txt", -signals())
    savemat(results / SIGNALS / "ROISignals_S2-3-0001.mat", {"ROISignals": signals()})
    savemat(results / SIGNALS / "ROISignals_pilot.mat", {"ROISignals": signals()})
    cohort = import_cohort("dpabi", results, tmp_path / "out", atlas="aal116")
    assert cohort.scan(0)[0, 0] == 1
    reasons = list_skipped(cohort)
    assert reasons.keys() == {"S2-3-0001", "ROISignals_pilot"}
    assert "neither 1" in reasons["S2-3-0001"]


def test_two_folders_are_ambiguous(results, tmp_path):
    other = results / "Results" / "ROISignals_FunImgARglobalCWF"
    other.mkdir()
    savemat(other / f"ROISignals_{MDD_IDS[0]}.mat", {"ROISignals": signals()})
    refuse(
        f"participant {MDD_IDS[0]} has a second file", import_cohort, "dpabi", results, tmp_path / "out", atlas="aal116"
    )


def test_covariates(results, tmp_path):
    table = results / "covariates.csv"
    table.write_text("ID,Age,Sex,site\nS1-1-0001,30,1,x\nS1-2-0001,,2,x\nS20-1-0007,41,1,y\nS9-1-0001,50,1,z\n")
    given = {"atlas": "aal116", "participants": "covariates.csv"}
    refuse_import(
        r"column 'Sex' contains the codes '1' \(2\), '2' \(1\); .* --male 1 --female 2",
        results,
        "dpabi",
        **given,
    )
    cohort = import_cohort("dpabi", results, tmp_path / "out", **given, male="1", female="2")
    assert cohort.participants["sex"].tolist()[:3] == ["M", "F", "M"]
    assert cohort.sites.tolist() == ["S1", "S1", "S20", "S20"]
    assert cohort.participants["site_in_source"].tolist()[:3] == ["x", "x", "y"]
    np.testing.assert_array_equal(cohort.participants["age"], [30, np.nan, 41, np.nan])
    assert cohort.provenance["renamed_columns"] == {"age": "Age", "sex": "Sex"}
    assert [s["participant_id"] for s in cohort.provenance["skipped"]] == ["S9-1-0001"]
    assert cohort.provenance["without_covariates"] == ["S20-2-0003"]
    table.write_text("name,Age\nS1-1-0001,30\n")
    message = "no column of identifiers .*its columns are name, Age; give the right column with --id-column"
    refuse_import(message, results, "dpabi", atlas="aal116", participants=table)
    cohort = import_cohort("dpabi", results, tmp_path / "out2", atlas="aal116", participants=table, id_column="name")
    np.testing.assert_array_equal(cohort.participants["age"], [30, np.nan, np.nan, np.nan])
    message = "--id-column needs a participants table; give one with --participants"
    refuse_import(message, results, "dpabi", atlas="aal116", id_column="name")


def test_wrong_variable_and_empty_folder(results, tmp_path):
    savemat(results / SIGNALS / f"ROISignals_{MDD_IDS[1]}.mat", {"Signals": signals()})
    message = rf"ROISignals_{MDD_IDS[1]}\.mat: has no variable 'ROISignals'"
    refuse(message, import_cohort, "dpabi", results, tmp_path / "out", atlas="aal116")
    (tmp_path / "none").mkdir()
    refuse(r"no file named ROISignals_", import_cohort, "dpabi", tmp_path / "none", tmp_path / "out", atlas="aal116")


# ---------------------------------------------------------------- packed

LENGTHS = np.array([8, 9, 10])
SCALE = np.linspace(0.01, 0.03, 3 * 200, dtype=np.float32).reshape(3, 200)
FRAMES = np.random.default_rng(0).integers(-127, 128, size=(LENGTHS.sum(), 200)).astype(np.int8)


def rewrite(archives: Path, atlas: str = "aal116", **changes: np.ndarray) -> None:
    """Write the scans of an atlas with other arrays in place of those of ``write_layout``."""
    with np.load(archives / "aal116.npz") as whole:
        np.savez(archives / f"{atlas}.npz", **{**whole, **changes})


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    src = write_layout("packed", tmp_path / "packed")
    table = pd.read_csv(src / "participants.tsv", sep="\t", dtype=str)
    table = table.assign(dead_rois_aal=7, fiq=[100, None, 102], tr_s=[2.0, 2.0, 1.5])
    table.to_csv(src / "participants.tsv", sep="\t", index=False)
    scale, frames = SCALE[:, :116].copy(), FRAMES.copy()
    scale[1, :29] = 0
    frames[17:, :50] = 5  # flat, though not zero
    rewrite(src, frames=FRAMES[:, :116], scale=scale)
    rewrite(src, "cc200", frames=frames, scale=SCALE)
    return src


@pytest.mark.parametrize(("asked", "atlas", "n_rois"), [("aal", "aal116", 116), ("cc200", "cc200", 200)])
def test_packed(archives, tmp_path, asked, atlas, n_rois):
    cohort = import_cohort("packed", archives, tmp_path / "out", atlas=asked)
    assert (cohort.atlas.name, cohort.n_rois, cohort.atlas.has_coordinates) == (atlas, n_rois, True)
    check(cohort, labels=[1, 0, 1], classes=("TD", "ASD"), n_frames=LENGTHS, tr=[2.0, 2.0, 1.5])
    check(cohort, age=[20, 31, 42], fiq=[100, np.nan, 102])
    packed = np.load(archives / f"{atlas}.npz")
    np.testing.assert_array_equal(cohort.scan(2), packed["frames"][17:] * packed["scale"][2])
    table = cohort.participants
    np.testing.assert_allclose(table["dead_fraction_aal116"], [0, 29 / 116, 0], atol=1e-6)
    np.testing.assert_allclose(table["dead_fraction_cc200"], [0, 0, 50 / 200], atol=1e-6)
    assert not {"dead_rois_aal", "diagnosis", "tr_s"} & set(table.columns)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"participant_id": np.array(["p1", "007", "p10"])},
            "scan 1 belongs to participant p1, but row 1 of participants.tsv to 007",
        ),
        ({"participant_id": np.array(["007", "p1"])}, "has 2 scans, but participants.tsv has 3 rows"),
        ({"n_frames": LENGTHS[::-1]}, "007 has 10 frames, but participants.tsv says 8"),
        ({"n_frames": LENGTHS + 1}, "007 has 9 frames, but participants.tsv says 8"),
        ({"frames": FRAMES[:-1, :116]}, "do not match"),
        ({"scale": SCALE}, "do not match"),
        ({"frames": FRAMES[:, :90], "scale": SCALE[:, :90]}, "has 90 columns, but atlas aal116 has 116 ROIs"),
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
    table = (archives / "participants.tsv").read_text()
    (archives / "participants.tsv").write_text(table.replace("p1\tA\t0", "p1\tA\t2"))
    refuse("participant p1 has diagnosis '2'", import_cohort, "packed", archives, tmp_path / "out", atlas="aal116")
    np.savez(archives / "aal116.npz", x=np.zeros(3))
    (archives / "participants.tsv").write_text(table)
    refuse_import(r"aal116\.npz: has no array 'frames'; it has x", archives, "packed", atlas="aal116")
