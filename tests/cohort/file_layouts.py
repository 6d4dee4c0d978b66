"""Write three small scans in each file layout that brio reads, with or without labels."""

from collections.abc import Callable, Sequence
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

from brio import BrioError, Cohort
from brio.cohort import load_bundled_atlas
from brio.cohort.readers import import_cohort

CODES = load_bundled_atlas("aal116").rois["code"].astype(str).tolist()
SITES, LABELS, AGES = ("A", "A", "B"), (1, 0, 1), (20, 31, 42)
IDS = {
    "pcp": ("North_001", "North_002", "South_003"),
    "dpabi": ("S1-1-0001", "S1-2-0001", "S20-1-0007"),
    "bids": ("sub-001", "sub-002", "sub-003"),
    "table": ("007", "p1", "p10"),
    "packed": ("007", "p1", "p10"),
}
"""Participants of each layout."""


def scan(i: int, n_rois: int = 116) -> np.ndarray:
    """Make frames that need no random numbers, so that their fingerprint is the same everywhere."""
    frames = np.arange(8 + i)[:, None] + 1.0
    return ((frames * (np.arange(n_rois) + 7 + i) ** 2) % 101 - 50) / 8


def write_layout(kind: str, src: Path, labels: tuple[int | None, ...] | None = LABELS) -> Path:
    """Write a folder of scans, one for each label; None writes no participants table, a label of None an empty cell."""
    src.mkdir(parents=True)
    n = 3 if labels is None else len(labels)
    WRITERS[kind](src, IDS[kind][:n])
    if labels is None or kind == "dpabi":
        return src
    rows = zip(IDS[kind], SITES, labels, AGES, (8, 9, 10), strict=False)
    words = [[w, s, "" if k is None else str(k), str(age), str(frames)] for w, s, k, age, frames in rows]
    if kind == "pcp":
        codes = {"1": "1", "0": "2", "": ""}
        lines = [["FILE_ID", "SITE_ID", "DX_GROUP", "AGE_AT_SCAN"], *([w, s, codes[k], a] for w, s, k, a, _ in words)]
        (src / "Phenotypic.csv").write_text("".join(",".join(line) + "\n" for line in lines))
    else:
        label = "diagnosis" if kind == "packed" else "label"
        lines = [["participant_id", "site", label, "age", "n_frames"], *words]
        (src / "participants.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    return src


def _write_pcp(src: Path, ids: tuple[str, ...]) -> None:
    for i, participant in enumerate(ids):
        write_text(src / f"{participant}_rois_aal.1D", scan(i), [f"#{code}" for code in CODES])


def _write_dpabi(src: Path, ids: tuple[str, ...]) -> None:
    for i, participant in enumerate(ids):
        savemat(src / f"ROISignals_{participant}.mat", {"ROISignals": np.tile(scan(i, 611), (1, 3))})


def _write_bids(src: Path, ids: tuple[str, ...]) -> None:
    for i, participant in enumerate(ids):
        path = src / participant / "func" / f"{participant}_task-rest_atlas-Tian_timeseries.tsv"
        write_text(path, scan(i, 5), list("abcde"))
        path.with_suffix(".json").write_text('{"RepetitionTime": 0.8}')


def _write_files(src: Path, ids: tuple[str, ...]) -> None:
    for i, participant in enumerate(ids):
        np.save(src / f"{participant}.npy", scan(i, 6))


def _write_packed(src: Path, ids: tuple[str, ...]) -> None:
    frames = [np.round(scan(i) * 2).astype(np.int8) for i in range(len(ids))]
    np.savez(
        src / "aal116.npz",
        frames=np.concatenate(frames),
        scale=np.full((len(ids), 116), 0.5, dtype=np.float32),
        n_frames=np.array([len(f) for f in frames]),
        participant_id=np.array(ids),
    )


def write_text(path: Path, frames: np.ndarray, names: Sequence[str] | None) -> None:
    """Write frames as text separated by tabs, under a header if there are names; NaN is n/a."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [] if names is None else ["\t".join(names)]
    rows += ["\t".join("n/a" if np.isnan(value) else str(value) for value in row) for row in frames]
    path.write_text("\n".join(rows) + "\n")


WRITERS = {
    "pcp": _write_pcp,
    "dpabi": _write_dpabi,
    "bids": _write_bids,
    "table": _write_files,
    "packed": _write_packed,
}


PEOPLE = ["p1", "p2", "p3", "p4"]


def make_frames(i: int, n_rois: int = 5, n_frames: int = 60) -> np.ndarray:
    """Make noise of five decimals. Shape [T, P]."""
    return np.random.default_rng(i).normal(size=(n_frames, n_rois)).round(5).astype(np.float32)


def write_study(
    src: Path,
    names: Sequence[str] = PEOPLE,
    write: Callable[[np.ndarray, Path], object] = lambda frames, path: np.save(path.with_suffix(".npy"), frames),
    *,
    ids: Sequence[str] | None = None,
    header: str = "participant_id,site,label",
    rows: Sequence[str] | None = None,
) -> Path:
    """Write frames under each name, without its suffix, and participants.csv: two sites and two classes, or rows."""
    for i, name in enumerate(names):
        (src / name).parent.mkdir(parents=True, exist_ok=True)
        write(make_frames(i), src / name)
    rows = rows or [f"{name},{'AB'[i % 2]},{i // 2 % 2}" for i, name in enumerate(ids or names)]
    (src / "participants.csv").write_text("\n".join([header, *rows]) + "\n")
    return src


def write_csv(frames: np.ndarray, path: Path, header: str = "") -> None:
    """Write frames between commas, to a path without suffix."""
    np.savetxt(f"{path}.csv", frames, delimiter=",", header=header, comments="", fmt="%.5f")


def save_cifti(path: Path, frames: np.ndarray, names: Sequence[str], tr: float) -> None:
    """Write frames as a parcellated CIFTI series."""
    parcels = []
    for i, name in enumerate(names):
        mask = np.zeros((len(names), 2, 2), dtype=bool)
        mask[i] = True
        parcels.append((name, nibabel.cifti2.BrainModelAxis.from_mask(mask, name="thalamus_left", affine=np.eye(4))))
    axes = nibabel.cifti2.SeriesAxis(0, tr, len(frames)), nibabel.cifti2.ParcelsAxis.from_brain_models(parcels)
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.Cifti2Image(frames.astype(np.float32), header=axes).to_filename(path)


def check(cohort: Cohort | pd.DataFrame, **expected: object) -> None:
    """Compare attributes of a cohort or else columns of its participants, or columns of a table, with lists."""
    for name, values in expected.items():
        found = getattr(cohort, name) if hasattr(cohort, name) else cohort.participants[name]
        np.testing.assert_equal(np.asarray(found).tolist(), np.asarray(values).tolist(), err_msg=name)


def check_scans(cohort: Cohort, expected: Sequence[np.ndarray]) -> None:
    """Compare all scans of a cohort with arrays, which are rounded to single precision."""
    assert len(cohort) == len(expected)
    for i, frames in enumerate(expected):
        np.testing.assert_array_equal(cohort.scan(i), np.asarray(frames, dtype=np.float32), err_msg=f"scan {i}")


def list_skipped(cohort: Cohort) -> dict[str, str]:
    """Return why each participant, or file, was skipped at import."""
    return {entry["participant_id"]: entry["reason"] for entry in cohort.provenance["skipped"]}


def refuse(message: str, call: Callable[..., object], *words: object, **options: object) -> None:
    """Require an error with a message; where the last word is a path, nothing new may lie beside it."""
    folder = Path(str(words[-1])).parent if words else Path()
    before = set(folder.iterdir()) if folder.is_dir() else set()
    with pytest.raises(BrioError, match=message):
        call(*words, **options)
    assert not folder.is_dir() or set(folder.iterdir()) == before


def refuse_import(message: str, src: Path, kind: str = "table", **options: object) -> None:
    """Require that an import is refused with a message, and leaves nothing."""
    refuse(message, import_cohort, kind, src, src.parent / "refused", **options)
