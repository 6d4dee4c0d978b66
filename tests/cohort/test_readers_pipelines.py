"""Output of XCP-D, giga_connectome, HALFpipe and C-PAC; scans that deviate; named connectomes; ``match``."""

import shutil
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from file_layouts import (
    check_scans,
    list_skipped,
    make_frames,
    refuse_import,
    write_layout,
    write_study,
    write_text,
)
from pipeline_folders import MEAN_FD, PIPELINES, TR, write_pipeline, write_xcpd_scan

from brio.cohort.readers import import_cohort, read_scans_to_predict, summarise_import
from brio.cohort.readers.bids import JOINED

CLASSES = {"label_column": "dx", "patient": "MDD", "control": "HC"}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_output_of_a_pipeline_is_imported_with_tr_and_motion(name, tmp_path):
    frames = write_pipeline(name, tmp_path / "study")
    _, atlas, has_motion = PIPELINES[name]
    cohort = import_cohort("bids", tmp_path / "study", tmp_path / "out", atlas=atlas, **CLASSES)
    check_scans(cohort, frames)
    np.testing.assert_allclose(cohort.participants["tr"], TR, rtol=1e-6)
    if has_motion:
        np.testing.assert_allclose(cohort.participants["mean_fd"], MEAN_FD)
    assert cohort.labels.sum() == 3
    if name.startswith("cpac"):
        assert cohort.atlas.rois["name"].tolist() == list("12345")
    assert set(list_skipped(cohort).values()) == ({JOINED} if name in ("xcpd-abcd", "xcpd-hbcd") else set())
    scans = read_scans_to_predict(tmp_path / "study", tmp_path / "scans", atlas=atlas, **CLASSES)
    assert (scans.provenance["kind"], scans.fingerprint) == ("bids", cohort.fingerprint)


def test_joined_runs_of_xcpd_are_left_out_beside_their_runs(tmp_path):
    src, runs = tmp_path / "study", [make_frames(i) for i in range(2)]
    for k in range(2):
        write_xcpd_scan("linc", src, f"sub-01_task-rest_dir-{'PA' if k else 'AP'}_run-{k + 1}", runs[k], MEAN_FD + k)
    write_xcpd_scan("linc", src, "sub-01_task-rest", np.vstack(runs), 7.0)
    write_xcpd_scan("linc", src, "sub-02_task-rest", np.vstack(runs[::-1]), 7.0)  # has no runs beside it
    (src / "participants.tsv").write_text("participant_id\tsite\tlabel\n01\tA\t0\nsub-02\tB\t1\n")
    cases = {"first": ({}, [60, 120]), "join": ({"runs": "concatenate"}, [120, 120])}
    for name, (options, lengths) in (cases | {"all": ({"sessions": "all"}, [60, 60, 120])}).items():
        cohort = import_cohort("bids", src, tmp_path / name, atlas="Gordon", **options)
        assert cohort.n_frames.tolist() == lengths
        fds = {"first": [MEAN_FD, 7], "join": [MEAN_FD + 0.5, 7], "all": [MEAN_FD, MEAN_FD + 1, 7]}[name]
        np.testing.assert_allclose(cohort.participants["mean_fd"], fds)
        skipped = [row["file"] for row in cohort.provenance["skipped"] if row["reason"] == JOINED]
        assert skipped == ["sub-01_task-rest_space-fsLR_atlas-Gordon_stat-mean_timeseries.tsv"]


NAMES = [f"r{i}" for i in range(5)]
TEN = [f"p{i:02d}" for i in range(10)]
DEVIATIONS = {
    "4 regions, while most scans have 5 (without r2)": lambda x: (np.delete(x, 2, axis=1), [*NAMES[:2], *NAMES[3:]]),
    "regions that differ from those of most scans (for example 's0', not 'r0')": lambda x: (x, ["s0", *NAMES[1:]]),
    "6 regions, while most scans have 5": lambda x: (np.hstack([x, x[:, :1]]), [*NAMES, "r5"]),
    "no column names, unlike most scans": lambda x: (x, None),
    "the scan contains no finite value": lambda x: (x * np.nan, NAMES),
    "has a header but no frames": lambda x: (x[:0], NAMES),
}


def write_deviating(src: Path, deviating: dict[int, str]) -> Path:
    """Write ten scans, some of which deviate from the others."""

    def write(frames: np.ndarray, path: Path) -> None:
        change = DEVIATIONS.get(deviating.get(TEN.index(path.name), ""), lambda x: (x, NAMES))
        write_text(path.with_suffix(".tsv"), *change(frames))

    return write_study(src, TEN, write)


@pytest.mark.parametrize("reason", DEVIATIONS)
@pytest.mark.parametrize("position", [0, 4])
def test_a_scan_that_deviates_is_skipped_with_its_reason(reason, position, tmp_path):
    src = write_deviating(tmp_path / "study", {position: reason})
    cohort = import_cohort("table", src, tmp_path / "out")
    check_scans(cohort, [make_frames(i) for i in range(10) if i != position])
    name = TEN[position]
    assert cohort.provenance["skipped"] == [{"participant_id": name, "reason": reason, "file": f"{name}.tsv"}]
    assert f"9 scans imported, 1 row or file skipped: {reason} (1)" in summarise_import(cohort)
    scans = read_scans_to_predict(src, tmp_path / "scans")
    assert list_skipped(scans) == {name: reason}


@pytest.mark.parametrize(
    ("most", "deviating", "differing"),
    [
        ("A A B C", "A A C B", "some names are repeated, and the columns differ"),
        ("A A B C", "A B B C", "some names are repeated, and the columns differ"),
        ("A B C D", "A A B C", "'D' is missing"),
        ("A A B C", "A B C D", "'D' is not among them"),
    ],
)
def test_repeated_names_that_deviate_are_told(most, deviating, differing, tmp_path):
    def write(frames: np.ndarray, path: Path) -> None:
        write_text(path.with_suffix(".tsv"), frames[:, :4], (deviating if path.name == TEN[3] else most).split())

    cohort = import_cohort("table", write_study(tmp_path / "study", TEN, write), tmp_path / "out")
    (skipped,) = cohort.provenance["skipped"]
    assert skipped["reason"] == f"regions that differ from those of most scans ({differing})"


def test_scans_without_a_clear_majority_are_refused_with_their_counts(tmp_path):
    first, other = list(DEVIATIONS)[:2]
    src = write_deviating(tmp_path / "study", {0: first, 3: first, 8: other})
    counts = (
        r"The 10 scans here: 5 regions \(7, such as p01\.tsv\); 4 regions.* \(2, such as p00\.tsv\); "
        r"regions that differ .* \(1, "
    )
    refuse_import(counts, src)
    write_deviating(tmp_path / "half", dict.fromkeys(range(5), first))
    halves = r"5 regions, while the scans of the largest group have 4 \(5, such as p05"
    refuse_import(halves, tmp_path / "half")
    write_deviating(tmp_path / "none", dict.fromkeys(range(10), list(DEVIATIONS)[-1]))
    refuse_import(r"p00\.tsv: has a header but no frames$", tmp_path / "none")


@pytest.mark.parametrize("form", ["pandas", "xcpd", "r", "numbers", "stack", "arrays"])
def test_connectomes_with_names_and_in_one_archive(form, tmp_path):
    fc = {name: np.corrcoef(make_frames(i).T) for i, name in enumerate(TEN)}

    def write(frames: np.ndarray, path: Path) -> None:
        names = NAMES if form != "numbers" else range(len(NAMES))
        table = pd.DataFrame(fc[path.name], names, names)
        if form not in ("stack", "arrays"):
            table.to_csv(f"{path}.csv", index_label="Node" if form == "xcpd" else "")
        if form == "r":  # whose header has no corner
            path.with_suffix(".csv").write_text(path.with_suffix(".csv").read_text().split(",", 1)[1])

    src = write_study(tmp_path / "study", TEN, write)
    if form == "stack":
        np.savez(src / "all.npz", fc=np.array([fc[name] for name in TEN[::-1]]), subjects=np.array(TEN[::-1]))
    elif form == "arrays":
        np.savez(src / "all.npz", **fc)
    cohort = import_cohort("fc", src, tmp_path / "out")
    expected = [np.arctanh(one - np.eye(5)) for one in fc.values()]
    np.testing.assert_allclose([cohort.scan(i) for i in range(10)], expected, atol=1e-6)
    assert (cohort.name, cohort.ids.tolist()) == ("study", TEN)
    if form in ("pandas", "xcpd", "r"):
        assert cohort.atlas.rois["name"].tolist() == NAMES
        for name in TEN:
            path = src / f"{name}.csv"
            path.write_text(path.read_text().replace("\nr1,", "\nr9,"))
        refuse_import(
            r"p00\.csv: row 2 is named 'r9', but column 2 is named 'r1'; a connectome must have the same", src, "fc"
        )


@pytest.mark.parametrize("kind", ["pcp", "dpabi", "bids", "table", "packed", "fc"])
def test_match_chooses_files_in_every_layout(kind, tmp_path):
    src, options = tmp_path / "study", {"atlas": "aal116"} if kind == "dpabi" else {}
    if kind == "fc":
        write_study(src, TEN, lambda x, path: np.save(f"{path}.npy", np.corrcoef(x.T)))
    else:
        write_layout(kind, src)
    expected = import_cohort(kind, src, tmp_path / "out", **options).fingerprint
    for file in [path for path in src.rglob("*") if path.suffix in (".1D", ".mat", ".tsv", ".json", ".npy", ".npz")]:
        if file.parent != src or not file.name.startswith("participants"):
            copy = src / "again" / file.relative_to(src) if kind != "packed" else src / "again.npz"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    refuse_import("second file|both match|another way|choose one", src, kind, **options)
    options["match"] = "aal116." if kind == "packed" else "again"
    cohort = import_cohort(kind, src, tmp_path / "matching", **options)
    assert cohort.fingerprint == expected
    if kind != "fc":
        scans = read_scans_to_predict(src, tmp_path / "scans", **options)
        assert (scans.provenance["kind"], scans.fingerprint) == (kind, expected)
    refuse_import("matches --match 'nowhere'", src, kind, **options | {"match": "nowhere"})


def test_images_beside_series_do_not_decide_the_layout(tmp_path):
    """XCP-D leaves its denoised images, C-PAC preprocessed ones; transforms of fMRIPrep are no series."""
    write_pipeline("xcpd-linc", tmp_path / "xcpd")
    folder = tmp_path / "xcpd" / "sub-01" / "func"
    (folder / "sub-01_task-rest_space-MNI152NLin2009cAsym_desc-denoised_bold.nii.gz").write_bytes(b"")
    (folder / "sub-01_from-T1w_to-MNI152NLin2009cAsym_mode-image_xfm.h5").symlink_to("nowhere")
    scans = read_scans_to_predict(tmp_path / "xcpd", tmp_path / "scans", atlas="4S156Parcels", **CLASSES)
    assert (scans.provenance["kind"], len(scans)) == ("bids", 6)
    (folder / "sub-01_task-rest_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz").write_bytes(b"")
    scans = read_scans_to_predict(tmp_path / "xcpd", tmp_path / "other", atlas="4S156Parcels", **CLASSES)
    assert (scans.provenance["kind"], len(scans)) == ("bids", 6)


def test_no_connectome_is_left_out_since_its_measure_is_unclear(tmp_path):
    """Low values of Fisher z may as well be correlations."""
    fc = {name: np.full((5, 5), 0.4 if name == "p03" else 1.4) * (1 - np.eye(5)) for name in TEN}
    src = write_study(tmp_path / "study", TEN, lambda _, path: np.save(f"{path}.npy", fc[path.name]))
    refuse_import(r"p03\.npy: may contain correlations or Fisher z; state which with --measure", src, "fc")
    assert len(import_cohort("fc", src, tmp_path / "cohort", measure="fisher-z")) == 10


def test_a_damaged_connectome_of_an_archive_is_left_out(tmp_path):
    src = write_study(tmp_path / "study", TEN, lambda *_: None)
    np.savez(src / "all.npz", **{name: np.corrcoef(make_frames(i, 40).T) for i, name in enumerate(TEN)})
    content = bytearray((src / "all.npz").read_bytes())
    with ZipFile(src / "all.npz") as archive:
        content[archive.getinfo("p04.npy").header_offset + 9000] ^= 1
    (src / "all.npz").write_bytes(content)
    reason = list_skipped(import_cohort("fc", src, tmp_path / "cohort"))["p04"]
    assert reason.startswith("cannot be read as npz (Bad CRC-32")


def test_a_participant_with_one_scan_under_two_sessions_is_left_out(tmp_path):
    people = TEN[:6]
    src = write_study(tmp_path / "study", [f"{name}_ses-{k}" for name in people for k in (1, 2)], ids=people)
    shutil.copy(src / "p00_ses-1.npy", src / "p00_ses-2.npy")
    cohort = import_cohort("table", src, tmp_path / "cohort", sessions="join")
    (reason,) = list_skipped(cohort).values()
    assert (len(cohort), reason.split(";")[0]) == (5, "seems to be the same scan as p00_ses-1.npy")
