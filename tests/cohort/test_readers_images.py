"""Series of regions from preprocessed images: those of nilearn's masker, whatever the images and strategies are."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest
from fmriprep_folders import AFFINE, LABELS, SPACE, TR, label_volume, write_atlas, write_derivatives, write_scan
from nilearn.image import resample_img
from nilearn.interfaces.fmriprep import load_confounds_strategy
from nilearn.maskers import NiftiLabelsMasker

import brio
from brio import BrioError, Cohort, import_cohort
from brio.cohort.readers import images, read_scans_to_predict
from brio.models import write_model
from commands import command


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Derivatives of twelve participants at three sites, and an atlas."""
    root = tmp_path_factory.mktemp("fmriprep")
    write_derivatives(root / "derivatives", outliers=2)
    write_atlas(root)
    return root


@pytest.fixture(scope="module")
def planted(folder) -> dict:
    return write_derivatives(folder / "same", outliers=2)


def import_images(folder: Path, out: Path, **options) -> Cohort:
    given = {"atlas": str(next(folder.glob("*_dseg.nii.gz"))), "denoise": "simple", **options}
    return import_cohort("fmriprep", folder / "derivatives", out=out, **given)


def image_of(folder: Path, subject: str = "sub-01", space: str = SPACE) -> Path:
    return folder / "derivatives" / subject / "func" / f"{subject}_task-rest_space-{space}_desc-preproc_bold.nii.gz"


def extract_with_masker(image: Path, atlas: Path, strategy: str | None, **filters) -> tuple[np.ndarray, np.ndarray]:
    """Extract the series of a scan with nilearn's masker; returns the kept frames as well."""
    confounds, kept = (None, None) if strategy is None else load_confounds_strategy(str(image), strategy)
    masker = NiftiLabelsMasker(str(atlas), detrend=True, standardize=None, t_r=TR, resampling_target="data", **filters)
    series = masker.fit_transform(str(image), confounds=confounds, sample_mask=kept)
    return series, np.arange(60) if kept is None else kept


def require_equal(frames: np.ndarray, expected: np.ndarray, kept: np.ndarray) -> None:
    """Require equality to 1e-6 of the SD of each region, and frames without values elsewhere."""
    assert np.isnan(np.delete(frames, kept, axis=0)).all()
    assert np.isfinite(frames[kept]).all()
    assert (np.abs(frames[kept] - expected).max(axis=0) <= 1e-6 * expected.std(axis=0)).all()


@pytest.mark.parametrize(
    ("strategy", "options", "filters"),
    [
        ("simple", {}, {}),
        ("scrubbing", {"low_pass": 0.1}, {"low_pass": 0.1}),
        (None, {"low_pass": 0.1, "high_pass": 0.01}, {"low_pass": 0.1, "high_pass": 0.01}),
    ],
)
def test_series_are_those_of_the_masker(folder, tmp_path, strategy, options, filters):
    cohort = import_images(folder, tmp_path / "cohort", denoise=strategy or "none", **options)
    assert len(cohort) == 12
    assert cohort.atlas.rois["name"].tolist() == [f"region{label}" for label in LABELS]
    assert (cohort.participants["tr"] == TR).all()
    for i in (0, 7):
        atlas = next(folder.glob("*_dseg.nii.gz"))
        series, kept = extract_with_masker(image_of(folder, cohort.ids[i]), atlas, strategy, **filters)
        require_equal(cohort.scan(i), series, kept)
        assert strategy != "scrubbing" or len(kept) < 60


def test_scaled_integers_and_another_grid(tmp_path):
    write_derivatives(tmp_path / "derivatives", dtype=np.int16)
    coarse = resample_img(
        nibabel.Nifti1Image(label_volume(), AFFINE), np.diag([4.5, 4.5, 4.5, 1.0]), (6, 6, 5), interpolation="nearest"
    )
    write_atlas(tmp_path)
    atlas = next(tmp_path.glob("*_dseg.nii.gz"))
    nibabel.save(coarse, atlas)
    cohort = import_images(tmp_path, tmp_path / "cohort")
    series, kept = extract_with_masker(image_of(tmp_path), atlas, "simple")
    found = [int(label) for label in np.unique(np.asarray(coarse.dataobj)) if label]
    columns = [i for i, name in enumerate(cohort.atlas.rois["name"]) if int(name.removeprefix("region")) in found]
    require_equal(cohort.scan(0)[:, columns], series, kept)


def test_denoising_removes_the_artefact(folder, planted, tmp_path):
    raw = import_images(folder, tmp_path / "raw", denoise="none")
    clean = import_images(folder, tmp_path / "clean", denoise="csf,white_matter")

    def correlate(scan: np.ndarray, signal: np.ndarray) -> float:
        return float(np.mean([abs(np.corrcoef(region, signal)[0, 1]) for region in scan.T]))

    for i, subject in enumerate(raw.ids):
        artefact, regions = planted[subject].artefact, planted[subject].regions
        assert correlate(raw.scan(i), artefact) > 0.9
        assert correlate(clean.scan(i), artefact) < 0.05
        for region, truth in zip(clean.scan(i).T, regions.T, strict=True):
            slope = np.polyfit(np.arange(60), truth, 1)
            assert np.corrcoef(region, truth - np.polyval(slope, np.arange(60)))[0, 1] > 0.9


def test_a_missing_region_is_dead_and_moves_no_other(folder, tmp_path):
    shutil.copytree(folder / "derivatives", tmp_path / "derivatives")
    write_atlas(tmp_path)
    path = image_of(tmp_path, "sub-02")
    image = nibabel.load(path)
    volume = np.asarray(image.dataobj)
    volume[label_volume() == LABELS[2]] = 0.0
    nibabel.save(nibabel.Nifti1Image(volume, image.affine, image.header), path)
    cohort, whole = import_images(tmp_path, tmp_path / "cohort"), import_images(folder, tmp_path / "whole")
    assert np.isnan(cohort.scan(1)[:, 2]).all()
    others = [0, 1, 3, 4]
    np.testing.assert_allclose(cohort.scan(1)[:, others], whole.scan(1)[:, others], atol=1e-4)  # SD 20


def test_provenance_says_what_was_done(folder, tmp_path):
    cohort = import_images(folder, tmp_path / "cohort", denoise="simple+gsr", low_pass=0.08)
    done = cohort.provenance["denoising"]
    assert done["parameters"]["global_signal"] == "basic"
    assert done["parameters"]["strategy"] == ["high_pass", "motion", "wm_csf"]
    assert done["low_pass"] == 0.08
    assert cohort.provenance["atlas_image"]["space"] == SPACE
    fd = pd.read_csv(next((folder / "derivatives/sub-01").rglob("*confounds*.tsv")), sep="\t")["framewise_displacement"]
    assert cohort.participants["mean_fd"][0] == pytest.approx(fd.mean())


def test_an_interrupted_import_goes_on(folder, tmp_path, monkeypatch):
    """Of seven scans extracted before the end none is extracted again, and the cohort is that of one import."""
    calls = []

    def extract_scan(path, *others):
        calls.append(path.name)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return extract(path, *others)

    extract = images.extract_scan
    monkeypatch.setattr(images, "extract_scan", extract_scan)
    with pytest.raises(KeyboardInterrupt):
        import_images(folder, tmp_path / "cohort")
    assert not (tmp_path / "cohort").exists()
    resumed = import_images(folder, tmp_path / "cohort")
    assert len(calls) == 8 + 5
    assert not (tmp_path / "cohort.extracted").exists()
    monkeypatch.undo()
    assert resumed.fingerprint == import_images(folder, tmp_path / "again", jobs=2).fingerprint


def test_what_is_said_of_a_scan_meanwhile_is_read(folder, tmp_path, monkeypatch):
    """A repetition time that was corrected after an interruption is that of the scans extracted before it."""
    shutil.copytree(folder / "derivatives", tmp_path / "derivatives")
    write_atlas(tmp_path)
    extract = images.extract_scan
    monkeypatch.setattr(
        images, "extract_scan", lambda path, *others: extract(path, *others) if "01" in path.name else 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        import_images(tmp_path, tmp_path / "cohort", low_pass=0.1)
    monkeypatch.undo()
    next((tmp_path / "derivatives").glob("task-rest_*.json")).write_text('{"RepetitionTime": 2.5}')
    resumed = import_images(tmp_path, tmp_path / "cohort", low_pass=0.1)
    assert (resumed.participants["tr"] == 2.5).all()
    assert resumed.fingerprint == import_images(tmp_path, tmp_path / "again", low_pass=0.1).fingerprint


def test_the_command(folder, tmp_path):
    atlas = next(folder.glob("*_dseg.nii.gz"))
    command = ["import", "fmriprep", folder / "derivatives", "--atlas", atlas, "--denoise", "simple", "--out", "cohort"]
    done = subprocess.run([sys.executable, "-m", "brio", *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "12 scans imported, none skipped" in done.stdout
    assert "mean_fd" in done.stdout
    assert "100%" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"denoise": "smple"}, "not 'smple'; did you mean 'simple'"),
        ({"denoise": "simple", "high_pass": 0.01}, "already includes a high-pass filter"),
        ({"denoise": "trans_x,trans_w"}, "no column 'trans_w'; did you mean"),
        ({"denoise": "trans_x,words"}, "cannot be read as a table of numbers .could not convert string to float"),
        ({"denoise": "compcor"}, "strategy 'compcor' cannot be used"),
        ({"denoise": "compcor", "jobs": 2}, "strategy 'compcor' cannot be used"),
        ({"denoise": "ica_aroma"}, "no file sub-.*smoothAROMAnonaggr"),
        ({"atlas": "schafer400"}, "not 'schafer400'; did you mean 'schaefer400'"),
        ({"atlas": "nowhere.nii.gz"}, "no such label image"),
        ({"space": "T1w"}, "no image has space-T1w"),
        ({"res": "2"}, r"no image has res-2; known: \(no res-\)"),
        ({"task": "nback"}, "has no files of task 'nback'"),
        ({"high_pass": 0.2, "low_pass": 0.1, "denoise": "none"}, "must be below"),
        ({"denoise": None}, "needs --denoise"),
        ({"atlas": None}, "needs --atlas"),
    ],
)
def test_what_is_refused(folder, tmp_path, options, message):
    with pytest.raises(BrioError, match=message):
        import_images(folder, tmp_path / "cohort", **options)
    assert not list(tmp_path.iterdir())


def test_spaces(tmp_path):
    """Two spaces must be told apart, the scanner's has no atlas, another version of the template is warned of."""
    write_derivatives(tmp_path / "derivatives", space="MNI152NLin2009cAsym")
    write_atlas(tmp_path)
    warnings = import_images(tmp_path, tmp_path / "cohort").provenance["warnings"]
    assert any("two versions of one template" in warning for warning in warnings)
    for k in range(12):
        write_scan(tmp_path / "derivatives", f"sub-{k + 1:02d}", k, 60, np.float32, space="MNIInfant")
    with pytest.raises(BrioError, match="space MNI152NLin2009cAsym, MNIInfant; choose one with --space"):
        import_images(tmp_path, tmp_path / "other")
    with pytest.raises(BrioError, match="are in MNIInfant; give images in MNI152NLin6Asym, or an atlas in MNIInfant"):
        import_images(tmp_path, tmp_path / "other", space="MNIInfant")


def test_dense_surfaces_and_maps_of_weights_are_refused(folder, tmp_path):
    dense = tmp_path / "derivatives" / "sub-01" / "func" / "sub-01_task-rest_space-fsLR_den-91k_bold.dtseries.nii"
    dense.parent.mkdir(parents=True)
    dense.write_bytes(b"")
    atlas = write_atlas(tmp_path)
    for name in (str(atlas), "schaefer400"):  # which would have to be downloaded
        with pytest.raises(BrioError, match=r"dense CIFTI series.*XCP-D"):
            import_images(tmp_path, tmp_path / "cohort", atlas=name)
    write_scan(tmp_path / "derivatives", "sub-01", 0, 60, np.float32)
    nibabel.save(nibabel.Nifti1Image(np.full((4, 4, 4), 0.5, dtype=np.float32), AFFINE), atlas)
    with pytest.raises(BrioError, match="is not a label image"):
        import_images(tmp_path, tmp_path / "cohort")
    nibabel.save(nibabel.Nifti1Image(np.ones((4, 4, 4, 2), dtype=np.int16), AFFINE), atlas)
    with pytest.raises(BrioError, match="has 4 axes, but a label image needs three"):
        import_images(tmp_path, tmp_path / "cohort")


def test_an_atlas_by_its_name(folder, tmp_path, monkeypatch):
    """The image is what nilearn fetches; regions are found by the codes of the table of that atlas."""
    from nilearn import datasets

    volume, codes = label_volume(), {3: 2001, 11: 2002, 12: 2101, 40: 9160, 41: 9170}
    for label, code in codes.items():
        volume[volume == label] = code
    nibabel.save(nibabel.Nifti1Image(volume, AFFINE), tmp_path / "AAL.nii.gz")
    monkeypatch.setattr(datasets, "fetch_atlas_aal", lambda **_: {"maps": str(tmp_path / "AAL.nii.gz")})
    named, own = (import_images(folder, tmp_path / str(k), **o) for k, o in enumerate(({"atlas": "aal116"}, {})))
    assert named.atlas.rois["name"].tolist()[:2] == ["Precentral_L", "Precentral_R"]
    np.testing.assert_array_equal(named.frames, own.frames)


def test_a_filter_needs_a_repetition_time_and_an_atlas_a_template(folder, tmp_path):
    shutil.copytree(folder / "derivatives", tmp_path / "derivatives")
    write_atlas(tmp_path)
    path = image_of(tmp_path, "sub-05")
    image = nibabel.load(path)
    image.header.set_zooms((3, 3, 3, 0))
    nibabel.save(image, tmp_path / "image.nii.gz")
    (tmp_path / "image.nii.gz").replace(path)
    next((tmp_path / "derivatives").glob("task-rest_*.json")).unlink()
    (skipped,) = import_images(tmp_path, tmp_path / "filtered", low_pass=0.1).provenance["skipped"]
    assert skipped["participant_id"] == "sub-05"
    assert "has no repetition time, but filters need one" in skipped["reason"]
    for path in sorted((tmp_path / "derivatives").rglob("*_space-*")):
        path.rename(path.with_name(path.name.replace(f"_space-{SPACE}", "")))
    with pytest.raises(BrioError, match=r"images are in the native space of each scan, .*; use a template space"):
        import_images(tmp_path, tmp_path / "cohort")


def test_a_model_extracts_new_images_as_those_it_was_fitted_to(folder, tmp_path):
    cohort = import_images(folder, tmp_path / "cohort", denoise="scrubbing")
    write_model(brio.fit(cohort, "ridge", device="cpu"), tmp_path / "model")
    atlas, source = next(folder.glob("*_dseg.nii.gz")), folder / "derivatives"
    words = ["predict", tmp_path / "model", source, "--atlas", atlas, "--quiet", "--out"]
    said = command(*words, tmp_path / "images")
    command("predict", tmp_path / "model", tmp_path / "cohort", "--out", tmp_path / "scans")
    one, other = (pd.read_csv(tmp_path / name / "predictions.csv") for name in ("images", "scans"))
    pd.testing.assert_frame_equal(one, other)
    assert "layout 'fmriprep'" in said.out
    assert "use the same options" not in said.out
    said = command(*words, tmp_path / "other", "--denoise", "simple")
    assert "with --denoise simple, but those of the model with --denoise scrubbing; use the same options" in said.out
    filtered = read_scans_to_predict(
        source, tmp_path / "f", atlas=atlas, low_pass=0.1, known_extraction={"denoise": "simple", "low_pass": 0.2}
    )
    assert filtered.provenance["options"]["low_pass"] == 0.1
    assert not (tmp_path / "f.extracted").exists()


def test_a_participant_without_an_image_is_skipped(folder, tmp_path):
    shutil.copytree(folder / "derivatives", tmp_path / "derivatives")
    write_atlas(tmp_path)
    image_of(tmp_path, "sub-05").unlink()
    (skipped,) = import_images(tmp_path, tmp_path / "cohort").provenance["skipped"]
    assert skipped == {"participant_id": "sub-05", "reason": "no preprocessed image"}


@pytest.mark.parametrize(
    "damage", ["cut", "no image", "no confounds", "short confounds", "binary confounds", "three axes"]
)
def test_a_damaged_scan_is_left_out(folder, tmp_path, damage):
    shutil.copytree(folder / "derivatives", tmp_path / "derivatives")
    write_atlas(tmp_path)
    path, confounds = image_of(tmp_path, "sub-03"), next((tmp_path / "derivatives/sub-03").rglob("*confounds*.tsv"))
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:20_000])
    elif damage == "no image":
        path.write_bytes(b"no image")
    elif damage == "binary confounds":
        confounds.write_bytes(bytes(range(256)))
    elif damage == "no confounds":
        confounds.unlink()
    elif damage == "short confounds":
        confounds.write_text("\n".join(confounds.read_text().splitlines()[:40]) + "\n")
    else:
        nibabel.save(nibabel.Nifti1Image(label_volume(), AFFINE), path)
    cohort = import_images(tmp_path, tmp_path / "cohort")
    (skipped,) = [entry for entry in cohort.provenance["skipped"] if entry["participant_id"] == "sub-03"]
    assert "sub-03" not in cohort.ids
    assert skipped["file"] in (path.name, confounds.name)
    assert len(cohort) == len(list(folder.glob("derivatives/sub-*"))) - 1


def test_an_atlas_without_a_table_names_its_labels(folder, tmp_path):
    atlas = write_atlas(tmp_path, table=False)
    cohort = import_images(folder, tmp_path / "cohort", atlas=str(atlas))
    assert cohort.atlas.rois["name"].tolist() == [f"label_{label}" for label in LABELS]
    short = import_images(folder, tmp_path / "short", drop_roi="region11", match="sub-0")
    assert short.ids.tolist() == [f"sub-0{i}" for i in range(1, 10)]
    assert short.atlas.rois["name"].tolist() == [f"region{label}" for label in LABELS if label != 11]
    np.testing.assert_array_equal(short.scan(0), cohort.scan(0)[:, [0, 2, 3, 4]])
    table = tmp_path / "rois.tsv"
    table.write_text("name\tcode\n" + "".join(f"r{label}\t{label}\n" for label in LABELS[1:]))
    with pytest.raises(BrioError, match="labels that are missing from the table of ROIs: 3;"):
        import_images(folder, tmp_path / "other", atlas=str(atlas), atlas_table=table)
    assert json.loads((tmp_path / "cohort" / "cohort.json").read_text())["provenance"]["kind"] == "fmriprep"
