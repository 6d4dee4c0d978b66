"""BIDS derivatives of XCP-D, HALFpipe, C-PAC and CIFTI pipelines."""

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
from file_layouts import check, check_scans, list_skipped, refuse, refuse_import, save_cifti, write_text

from brio.cohort import load_bundled_atlas
from brio.cohort.readers import import_cohort, summarise_import
from brio.cohort.readers.assembly import join_scans
from brio.cohort.readers.bids import parse_name
from brio.cohort.readers.series import Series, read_series

NAMES = ("LH-Vis", "RH-Vis", "LH-Mot", "RH-Mot", "Thalamus")
SUBJECTS = ("sub-001", "sub-002", "sub-003", "sub-004")
XCPD = "{sub}_task-rest_space-MNI_atlas-Tian_stat-mean_timeseries.tsv"


def scan(seed: int, n_rois: int = len(NAMES)) -> np.ndarray:
    return np.random.default_rng(seed).normal(3.0, 1 + seed, size=(10 + seed, n_rois)).round(4)


def participants(src: Path, text: str | None = None) -> None:
    src.mkdir(parents=True, exist_ok=True)
    rows = [f"{s}\t{'AB'[i // 2]}\t{i % 2}\t{20 + i}" for i, s in enumerate(SUBJECTS)]
    (src / "participants.tsv").write_text(text or "\n".join(["participant_id\tsite\tlabel\tage", *rows]) + "\n")


def derivative(src: Path, sub: str, pattern: str = XCPD) -> Path:
    return src / "derivatives" / "pipeline" / sub / "func" / pattern.format(sub=sub)


@pytest.fixture
def src(tmp_path: Path) -> Path:
    participants(tmp_path / "study")
    return tmp_path / "study"


@pytest.fixture
def xcpd(src: Path) -> Path:
    for i, sub in enumerate(SUBJECTS):
        write_text(derivative(src, sub), scan(i), NAMES)
        for other in (XCPD.replace("mean", "coverage"), "{sub}_task-rest_desc-confounds_timeseries.tsv"):
            write_text(derivative(src, sub, other), np.zeros((5, 2)), ("a", "b"))
    return src


def test_xcpd(xcpd, tmp_path):
    cohort = import_cohort("bids", xcpd, tmp_path / "out")
    check(cohort, ids=list(SUBJECTS), labels=[0, 1, 0, 1], sites=["A", "A", "B", "B"], age=[20, 21, 22, 23])
    assert cohort.atlas.name == "Tian"
    assert cohort.atlas.rois["name"].tolist() == list(NAMES)
    check_scans(cohort, [scan(i) for i in range(4)])
    assert summarise_import(cohort) == "4 scans imported, none skipped"
    assert cohort.provenance["n_files"] == 4


@pytest.mark.parametrize(
    ("name", "atlas", "feature", "scan_"),
    [
        ("sub-1_ses-2_task-rest_run-1_space-MNI_atlas-Gordon_timeseries.tsv", "Gordon", "", "ses-2 task-rest run-1"),
        ("sub-1_task-rest_space-fsLR_seg-4S156Parcels_stat-mean_timeseries.tsv", "4S156Parcels", "", "task-rest"),
        ("sub-1_task-rest_feature-corr_atlas-schaefer_timeseries.txt", "schaefer", "corr", "task-rest"),
        ("sub-1_feature-corr_timeseries.tsv", "", "corr", ""),
        ("sub-1_task-rest_atlas-Yeo-17space-MNI_desc-Mean-1_timeseries.1D", "Yeo-17", "", "task-rest"),
        ("sub-1_atlas-ROI_dACC_7_desc-Mean-1_timeseries.1D", "ROI_dACC_7", "", ""),
        ("sub-1_task-rest_bold_atlas-HCP2016_desc-filtered_timeseries.ptseries.nii", "HCP2016", "", "task-rest"),
    ],
)
def test_names(name, atlas, feature, scan_):
    found = parse_name(Path(name))
    assert (found.subject, found.atlas, found.feature) == ("sub-1", atlas, feature)
    assert " ".join(found.scan) == scan_


def test_names_of_other_files():
    names = "sub-1_task-rest_desc-confounds_timeseries.tsv sub-1_atlas-Tian_stat-coverage_timeseries.tsv "
    names += "sub-1_atlas-Tian_relmat.tsv group_atlas-Tian_timeseries.tsv sub-1_atlas-Tian_timeseries.json"
    assert [parse_name(Path(name)) for name in names.split()] == [None] * 5


def test_missing_parcels_stay_and_columns_are_brought_to_one_order(xcpd, tmp_path):
    x, order = scan(1), [3, 1, 4, 0, 2]
    x[:, 2] = np.nan
    write_text(derivative(xcpd, "sub-002"), x, NAMES)
    write_text(derivative(xcpd, "sub-003"), scan(2)[:, order], [NAMES[i] for i in order])
    cohort = import_cohort("bids", xcpd, tmp_path / "out")
    np.testing.assert_allclose(cohort.scan(1), x, rtol=1e-6)  # an ROI without signal
    np.testing.assert_allclose(cohort.scan(2), scan(2), rtol=1e-6)


@pytest.mark.parametrize(
    ("x", "names", "message"),
    [
        (scan(2), (*NAMES[:4], "Putamen"), r"sub-003\S+: has ROI 'Putamen' but not 'Thalamus' of \S+sub-001"),
        (scan(2), None, r"sub-003\S+: has no column names, although \S+sub-001\S+ has column names; add a header"),
        (scan(2), (*NAMES[:4], "RH-Mot"), r"sub-003\S+: column 'RH-Mot' appears more than once"),
    ],
)
def test_scans_of_another_parcellation(xcpd, tmp_path, x, names, message):
    write_text(derivative(xcpd, "sub-003"), x, names)
    refuse(message, import_cohort, "bids", xcpd, tmp_path / "out")


def test_two_atlases_must_be_chosen(xcpd, tmp_path):
    for i, sub in enumerate(SUBJECTS[:2]):
        write_text(derivative(xcpd, sub, "{sub}_task-rest_atlas-AAL_timeseries.tsv"), scan(i, 116), None)
    refuse(
        "has files of several atlases: AAL, Tian; choose one with --atlas",
        import_cohort,
        "bids",
        xcpd,
        tmp_path / "out",
    )
    refuse("no files of atlas 'Tina'; did you mean 'Tian'", import_cohort, "bids", xcpd, tmp_path / "out", atlas="Tina")
    cohort = import_cohort("bids", xcpd, tmp_path / "out", atlas="aal116")
    assert (cohort.n_rois, cohort.atlas.name, cohort.atlas.has_coordinates) == (116, "aal116", True)
    assert list_skipped(cohort) == dict.fromkeys(SUBJECTS[2:], "no time series of atlas 'AAL'")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([f"roi{u + 1:03d}" for u in range(120)], None),
        ([f"r{i}" for i in range(116)], [f"r{i}" for i in range(116)]),
        (load_bundled_atlas("aal").rois["name"].tolist()[::-1], load_bundled_atlas("aal").rois["name"].tolist()),
    ],
    ids=["another size", "other names", "another order"],
)
def test_a_bundled_atlas_lends_its_order_to_files_with_its_names_alone(tmp_path, names, expected):
    participants(tmp_path / "study")
    for i, sub in enumerate(SUBJECTS):
        path = derivative(tmp_path / "study", sub, "{sub}_atlas-AAL_timeseries.tsv")
        write_text(path, scan(i, len(names)), names if expected else None)
    cohort = import_cohort("bids", tmp_path / "study", tmp_path / "out")
    assert cohort.atlas.rois["name"].tolist() == (expected or names)
    is_bundled = names == (expected or [])[::-1]
    assert cohort.atlas.has_coordinates == is_bundled
    np.testing.assert_allclose(cohort.scan(0), scan(0, len(names))[:, :: -1 if is_bundled else 1], rtol=1e-6)


def test_halfpipe_features(src, tmp_path):
    pattern = "{{sub}}_task-rest_feature-{}_atlas-schaefer_timeseries.txt"
    for i, sub in enumerate(SUBJECTS):
        write_text(derivative(src, sub, pattern.format("aroma")), scan(i), None)
        write_text(derivative(src, sub, pattern.format("compcor")), -scan(i), None)
    for asked in (None, "schaefer"):
        refuse_import("has files of several atlases: aroma/schaefer, compcor/schaefer", src, "bids", atlas=asked)
    for asked in ("compcor", "compcor/schaefer"):
        out = tmp_path / asked.replace("/", "-")
        cohort = import_cohort("bids", src, out, atlas=asked)
        np.testing.assert_allclose(cohort.scan(1), -scan(1), rtol=1e-6)
        assert cohort.atlas.name == "schaefer"
        assert cohort.atlas.rois["name"][0] == "roi001"


def test_cpac_variants_are_not_runs(src, tmp_path):
    pattern = "{{sub}}_task-rest_run-1_atlas-CC200_space-MNI_reg-{}_desc-Mean-1_timeseries.1D"
    for i, sub in enumerate(SUBJECTS):
        for reg, x in (("default", scan(i, 200)), ("defaultNoGSR", scan(i, 200) + 1)):
            write_text(derivative(src, sub, pattern.format(reg)), x, [f"#{u + 1}" for u in range(200)])
    for runs in ("first", "concatenate"):
        refuse_import(r"is another version of the scan in .*; .*--match", src, "bids", runs=runs)
    cohort = import_cohort("bids", src, tmp_path / "out", match="reg-default_")
    np.testing.assert_allclose(cohort.scan(3), scan(3, 200), atol=1e-3)
    assert cohort.atlas.name == "cc200"
    assert cohort.provenance["rois"] == "header matched to the bundled atlas by index"
    refuse(
        "no path matches --match 'reg-x' \\(8 files, for example",
        import_cohort,
        "bids",
        src,
        tmp_path / "out2",
        match="reg-x",
    )


def test_cifti_alone_and_beside_its_tsv(src, tmp_path):
    stem = "{sub}_task-rest_space-fsLR_atlas-Tian_den-91k_stat-mean_timeseries"
    for i, sub in enumerate(SUBJECTS):
        save_cifti(derivative(src, sub, stem + ".ptseries.nii"), scan(i), NAMES, tr=0.72)
    cohort = import_cohort("bids", src, tmp_path / "alone")
    assert cohort.atlas.rois["name"].tolist() == list(NAMES)
    np.testing.assert_allclose(cohort.participants["tr"], 0.72, rtol=1e-6)
    np.testing.assert_allclose(cohort.scan(2), scan(2), rtol=1e-6)
    for i, sub in enumerate(SUBJECTS):
        write_text(derivative(src, sub, stem + ".tsv"), scan(i), NAMES)
    cohort = import_cohort("bids", src, tmp_path / "beside", runs="concatenate")
    assert cohort.n_frames.tolist() == [10, 11, 12, 13]
    assert cohort.provenance["copies_in_other_formats"] == 4


def test_a_cifti_file_of_other_axes_is_refused(src, tmp_path):
    path = derivative(src, "sub-01", "sub-01_task-rest_seg-Tian_timeseries.ptseries.nii")
    save_cifti(path, scan(1), NAMES, 0.8)
    parcels = nibabel.load(path).header.get_axis(1)
    nibabel.Cifti2Image(np.eye(len(NAMES)), header=(parcels, parcels)).to_filename(path)
    refuse("has the axes parcels, parcels; give a parcellated series", read_series, path)


def test_the_first_run_is_taken_or_runs_are_joined_on_request(xcpd, tmp_path):
    for run, seed in ((2, 20), (10, 30)):
        write_text(derivative(xcpd, "sub-001", XCPD.replace("rest", f"rest_run-{run}")), scan(seed), NAMES)
    derivative(xcpd, "sub-001").unlink()
    cohort = import_cohort("bids", xcpd, tmp_path / "first")
    check_scans(cohort, [scan(seed) for seed in (20, 1, 2, 3)])
    (entry,) = cohort.provenance["skipped"]
    assert entry["participant_id"] == "sub-001"
    assert entry["reason"] == "another run; only the first was read (to join runs: --runs concatenate)"
    assert "run-10" in entry["file"]
    cohort = import_cohort("bids", xcpd, tmp_path / "joined", runs="concatenate")
    expected = [(scan(seed) - scan(seed).mean(axis=0)) / scan(seed).std(axis=0) for seed in (20, 30)]
    np.testing.assert_allclose(cohort.scan(0), np.concatenate(expected), atol=1e-5)
    np.testing.assert_allclose(cohort.scan(1), scan(1), rtol=1e-6)
    assert (cohort.provenance["skipped"], cohort.provenance["n_files"]) == ([], 5)
    refuse("runs cannot be 'all'", import_cohort, "bids", xcpd, tmp_path / "out2", runs="all")


def test_joined_runs_by_name_with_dead_rois():
    x, y = scan(1).astype(np.float32), scan(2).astype(np.float32)
    y[:, 4] = 0  # no signal in one run
    x[3, 0] = np.nan  # one frame
    paths = [Path("a"), Path("b")]
    joined = join_scans([Series(x, NAMES), Series(y[:, ::-1], NAMES[::-1])], paths).frames
    assert np.isnan(joined[:, 4]).all()
    assert np.argwhere(np.isnan(joined[:, :4])).tolist() == [[3, 0]]
    np.testing.assert_allclose(joined[11:, 1], (y[:, 1] - y[:, 1].mean()) / y[:, 1].std(), rtol=1e-4, atol=1e-5)
    refuse(
        r"b: the repetition time is 2.0 s, but 1.0 s in a",
        join_scans,
        [Series(x, None, 1.0), Series(x, None, 2.0)],
        paths,
    )


def test_tasks_are_not_mixed(xcpd, tmp_path):
    write_text(derivative(xcpd, "sub-001", XCPD.replace("rest", "nback")), scan(9), NAMES)
    refuse(
        "has files of several tasks: nback, rest; choose one with --task", import_cohort, "bids", xcpd, tmp_path / "out"
    )
    cohort = import_cohort("bids", xcpd, tmp_path / "out", task="rest")
    np.testing.assert_allclose(cohort.scan(0), scan(0), rtol=1e-6)
    refuse("no files of task 'rst'; did you mean 'rest'", import_cohort, "bids", xcpd, tmp_path / "out2", task="rst")


def test_sidecar_gives_tr_and_a_note(xcpd, tmp_path):
    for sub, content in (
        ("sub-001", {"RepetitionTime": 2.5, "Interpolated": True, "SourceCells": ["a"]}),
        ("sub-002", {"SamplingFrequency": 0.5}),
    ):
        derivative(xcpd, sub).with_suffix(".json").write_text(json.dumps(content))
    cohort = import_cohort("bids", xcpd, tmp_path / "out")
    np.testing.assert_array_equal(cohort.participants["tr"], [2.5, 2.0, np.nan, np.nan])
    assert cohort.provenance["sidecar_of_first"] == {"RepetitionTime": 2.5, "Interpolated": True}


def test_text_labels_and_other_columns(xcpd, tmp_path):
    diagnoses = ["A\tADHD", "A\tHC", "B\tADHD", "B\tBP", "B\tHC", "B\tn/a"]
    rows = [f"{number:03d}\t{row}" for number, row in enumerate(diagnoses, 1)]
    participants(xcpd, "\n".join(["participant_id\thospital\tdx", *rows]))
    columns = {"site_column": "hospital", "label_column": "dx"}
    cohort = import_cohort("bids", xcpd, tmp_path / "out", patient="ADHD", control="HC", **columns)
    check(cohort, ids=["001", "002", "003"], labels=[1, 0, 1], classes=("HC", "ADHD"))  # zeros stay
    assert list_skipped(cohort) == {
        "004": "label 'BP' is neither patient nor control",
        "005": "no time series of atlas 'Tian'",
        "006": "no label in column 'dx'",
    }


def test_subject_without_row_and_subject_twice(xcpd, tmp_path):
    participants(xcpd, "participant_id\tsite\tlabel\nsub-001\tA\t0\nsub-002\tA\t1\nsub-004\t\t1\n")
    cohort = import_cohort("bids", xcpd, tmp_path / "out")
    assert list_skipped(cohort) == {"sub-003": "no row in participants.tsv", "sub-004": "no site in column 'site'"}
    participants(xcpd, "participant_id\tsite\tlabel\nsub-001\tA\t0\nsub-002\tA\t1\n001\tA\t1\n")
    refuse(
        "sub-001 appears more than once, perhaps with and without 'sub-'",
        import_cohort,
        "bids",
        xcpd,
        tmp_path / "out2",
    )


def test_no_table_and_no_series(xcpd, tmp_path):
    refuse_import(
        r"has no participants\.tsv; give the participants table with --participants", xcpd / "derivatives", "bids"
    )
    cohort = import_cohort("bids", xcpd / "derivatives", tmp_path / "out", participants=xcpd / "participants.tsv")
    assert len(cohort) == 4
    participants(tmp_path / "bare")
    refuse("no file sub-", import_cohort, "bids", tmp_path / "bare", tmp_path / "out2")


def test_sidecars_are_inherited(src, tmp_path):
    """giga_connectome writes one json per scan without ``seg-``; a general one may lie at the top."""
    pattern = "{sub}_task-rest_space-MNI_seg-Schaefer_desc-denoiseSimple_timeseries.tsv"
    for i, sub in enumerate(SUBJECTS):
        write_text(derivative(src, sub, pattern), scan(i), NAMES)
        sidecar = derivative(src, sub, "{sub}_task-rest_space-MNI_desc-denoiseSimple_timeseries.json")
        sidecar.write_text(json.dumps({"ConfoundRegressors": ["csf"]} | ({"RepetitionTime": 3.0} if i else {})))
    (src / "task-rest_timeseries.json").write_text(json.dumps({"RepetitionTime": 2.0}))
    (src / "task-nback_timeseries.json").write_text(json.dumps({"RepetitionTime": 1.0}))
    cohort = import_cohort("bids", src, tmp_path / "out")
    assert cohort.participants["tr"].tolist() == [2.0, 3.0, 3.0, 3.0]


def test_motion_of_xcpd_becomes_the_mean_displacement(xcpd, tmp_path):
    for i, sub in enumerate(SUBJECTS):
        motion = derivative(xcpd, sub, "{sub}_task-rest_motion.tsv")
        motion.write_text(f"rot_x\tframewise_displacement\n0.1\tn/a\n0.1\t0.{i + 1}\n0.1\t0.{i + 3}\n")
        derivative(xcpd, sub, "{sub}_task-nback_motion.tsv").write_text("framewise_displacement\n9\n")
    cohort = import_cohort("bids", xcpd, tmp_path / "out")
    np.testing.assert_allclose(cohort.participants["mean_fd"], [0.2, 0.3, 0.4, 0.5])
    participants(xcpd, "participant_id\tsite\tlabel\tmean_fd\n" + "".join(
        f"{s}\t{'AB'[i // 2]}\t{i % 2}\t1\n" for i, s in enumerate(SUBJECTS)
    ))  # fmt: skip
    assert (import_cohort("bids", xcpd, tmp_path / "own").participants["mean_fd"] == 1).all()
