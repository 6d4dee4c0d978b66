"""ABIDE as the Preprocessed Connectomes Project lays it out, from the disk and through the fetcher."""

import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from file_layouts import refuse

from brio import BrioError
from brio.cohort import load_bundled_atlas
from brio.cohort.readers import fetch_abide, import_cohort, read_series, summarise_import

CSV = "Phenotypic_V1_0b_preprocessed1.csv"
CODES = load_bundled_atlas("aal116").rois["code"].astype(str).tolist()


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
def tree(tmp_path: Path) -> Path:
    src = tmp_path / "release"
    src.mkdir()
    phenotypic().to_csv(src / CSV)
    for i, participant in enumerate(["North_001", "North_002", "South_004", "South_005"]):
        write_1d(src / "cpac" / "filt_global" / f"{participant}_rois_aal.1D", scan(i), CODES)
    write_1d(src / "cpac" / "filt_global" / "Stray_009_rois_aal.1D", scan(9), CODES)
    return src


def test_import(tree, tmp_path):
    cohort = import_cohort("pcp", tree, tmp_path / "out", atlas=None, participants=None)
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


def test_permuted_header_is_put_in_atlas_order(tree, tmp_path):
    rng = np.random.default_rng(3)
    for i, participant in enumerate(["North_001", "South_004"]):  # the first scan too: the atlas sets the order, not it
        shuffled = rng.permutation(116)
        path = tree / "cpac" / "filt_global" / f"{participant}_rois_aal.1D"
        write_1d(path, scan(2 * i)[:, shuffled], [CODES[j] for j in shuffled])
    cohort = import_cohort("pcp", tree, tmp_path / "out", atlas="aal116")
    np.testing.assert_allclose(cohort.scan(0), scan(0), rtol=1e-6)
    np.testing.assert_allclose(cohort.scan(2), scan(2), rtol=1e-6)


@pytest.mark.parametrize("participant", ["North_001", "South_005"])
def test_unknown_code(tree, tmp_path, participant):
    write_1d(tree / "cpac" / "filt_global" / f"{participant}_rois_aal.1D", scan(1), ["9999", *CODES[1:]])
    refuse(rf"{participant}_rois_aal\.1D: .*'9999'", import_cohort, "pcp", tree, tmp_path / "out")


def test_header_is_required(tree, tmp_path):
    path = tree / "cpac" / "filt_global" / "North_001_rois_aal.1D"
    path.write_text(path.read_text().partition("\n")[2])
    refuse(r"North_001_rois_aal\.1D: has no header", import_cohort, "pcp", tree, tmp_path / "out")


def test_cc200_beside_aal_must_be_chosen(tree, tmp_path):
    for i, participant in enumerate(["North_001", "North_002"]):
        path = tree / "cpac" / "filt_global" / f"{participant}_rois_cc200.1D"
        write_1d(path, scan(i, 200), [str(u + 1) for u in range(200)])
    refuse("holds the atlases aal, cc200; choose one with --atlas", import_cohort, "pcp", tree, tmp_path / "out")
    refuse("no atlas 'cc20', did you mean 'cc200'", import_cohort, "pcp", tree, tmp_path / "out", atlas="cc20")
    cohort = import_cohort("pcp", tree, tmp_path / "out", atlas="cc200")
    assert (len(cohort), cohort.n_rois, cohort.atlas.name) == (2, 200, "cc200")


def test_two_pipelines_are_ambiguous(tree, tmp_path):
    write_1d(tree / "cpac" / "nofilt_noglobal" / "North_001_rois_aal.1D", scan(0), CODES)
    refuse(r"North_001_rois_aal\.1D: also at .*--participants", import_cohort, "pcp", tree, tmp_path / "out")
    cohort = import_cohort("pcp", tree / "cpac" / "filt_global", tmp_path / "out", participants=tree / CSV)
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
def test_wrong_table(tree, tmp_path, changes, message):
    phenotypic(**changes).to_csv(tree / CSV)
    refuse(message, import_cohort, "pcp", tree, tmp_path / "out")


def test_missing_column_and_table(tree, tmp_path):
    phenotypic().rename(columns={"DX_GROUP": "DX_GRUOP"}).to_csv(tree / CSV)
    refuse("no column 'DX_GROUP', did you mean 'DX_GRUOP'", import_cohort, "pcp", tree, tmp_path / "out")
    (tree / CSV).unlink()
    refuse(r"henotypic.*--participants", import_cohort, "pcp", tree, tmp_path / "out")


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
    for path in files:
        participant, _, label = path.stem.partition("_rois_")
        atlas = load_bundled_atlas(label)
        series = read_series(path)
        key = "code" if "code" in atlas.rois else "index"
        assert list(series.columns) == atlas.rois[key].astype(str).tolist()
        packed = np.load(abide_folder / f"{atlas.name}.npz", allow_pickle=False)
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
    for participant in table.loc[table["FILE_ID"] != "no_filename", "FILE_ID"]:
        (src / "cpac" / f"{participant}_rois_aal.1D").write_text(frames)
    cohort = import_cohort("pcp", src, tmp_path / "out", participants=next(sample.glob("*henotypic*.csv")))
    assert len(cohort) == 1035
    assert len(cohort.provenance["skipped"]) == 77
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
        refuse(message, fetch_abide, "aal", tmp_path / "three", **again)
        assert not (tmp_path / "three").exists()
