"""Write folders as fMRIPrep leaves them: small images with planted regions, and confounds with a planted artefact."""

import json
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd

SHAPE = (9, 8, 7)
TR = 2.0
AFFINE = np.diag([3.0, 3.0, 3.0, 1.0])
LABELS = (3, 11, 12, 40, 41)
MOTION = [f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz"]
SPACE = "MNI152NLin6Asym"


@dataclass(frozen=True)
class Planted:
    """What was planted in a scan."""

    regions: np.ndarray  # [T, P]
    artefact: np.ndarray  # [T]


def write_atlas(folder: Path, affine: np.ndarray = AFFINE, table: bool = True) -> Path:
    """Write an image of five labels with its table beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"tpl-{SPACE}_atlas-Toy_dseg.nii.gz"
    nibabel.save(nibabel.Nifti1Image(label_volume(), affine), path)
    if table:
        rows = pd.DataFrame({"index": LABELS[::-1], "name": [f"region{k}" for k in LABELS[::-1]]})
        rows.to_csv(folder / f"tpl-{SPACE}_atlas-Toy_dseg.tsv", sep="\t", index=False)
    return path


def label_volume() -> np.ndarray:
    """Lay five regions out in a volume, with background between them. int16."""
    volume = np.zeros(SHAPE, dtype=np.int16)
    for k, label in enumerate(LABELS):
        volume[1 + k : 2 + k, 1:7, 1:6] = label
    return volume


def write_derivatives(
    root: Path,
    n_sites: int = 3,
    per_class: int = 2,
    n_frames: int = 60,
    dtype: type = np.float32,
    space: str = SPACE,
    outliers: int = 0,
) -> dict[str, Planted]:
    """Write derivatives of some participants with their table; returns what was planted in each scan."""
    planted, rows = {}, []
    for k in range(2 * n_sites * per_class):
        subject = f"sub-{k + 1:02d}"
        rows.append({"participant_id": subject, "site": f"site{k % n_sites}", "label": (k // n_sites) % 2})
        planted[subject] = write_scan(root, subject, k, n_frames, dtype, space, outliers)
    pd.DataFrame(rows).to_csv(root / "participants.tsv", sep="\t", index=False)
    (root / "task-rest_space-MNI152NLin6Asym_desc-preproc_bold.json").write_text(json.dumps({"RepetitionTime": TR}))
    return planted


def write_scan(
    root: Path, subject: str, seed: int, n_frames: int, dtype: type, space: str = SPACE, outliers: int = 0
) -> Planted:
    """Write image, sidecar and confounds of one scan."""
    rng = np.random.default_rng(seed)
    func = root / subject / "func"
    func.mkdir(parents=True, exist_ok=True)
    regions = np.cumsum(rng.normal(size=(n_frames, len(LABELS))), axis=0)
    regions = 20 * (regions - regions.mean(axis=0)) / regions.std(axis=0)
    regions += 10 * rng.normal(size=regions.shape)
    artefact = 200 * np.sin(np.arange(n_frames) * 2.1) * rng.uniform(0.5, 1.5, n_frames)
    volume = 1000 + 5 * rng.normal(size=(*SHAPE, n_frames)) + artefact
    labels = label_volume()
    for k, label in enumerate(LABELS):
        volume[labels == label] += regions[:, k]
    header = nibabel.Nifti1Header()
    header.set_xyzt_units("mm", "sec")
    if dtype is np.int16:
        header.set_data_dtype(np.int16)
        image = nibabel.Nifti1Image(volume, AFFINE, header)  # nibabel scales it
    else:
        image = nibabel.Nifti1Image(volume.astype(dtype), AFFINE, header)
    image.header.set_zooms((3.0, 3.0, 3.0, TR))
    stem = f"{subject}_task-rest"
    nibabel.save(image, func / f"{stem}_space-{space}_desc-preproc_bold.nii.gz")
    confounds = write_confounds(func / f"{stem}_desc-confounds_timeseries.tsv", artefact, rng, outliers)
    assert len(confounds) == n_frames
    return Planted(regions, artefact)


def write_confounds(path: Path, artefact: np.ndarray, rng: np.random.Generator, outliers: int = 0) -> pd.DataFrame:
    """Write confounds as fMRIPrep does; the artefact is the signal of white matter."""
    n = len(artefact)
    columns: dict[str, np.ndarray] = {"csf": rng.normal(size=n), "white_matter": artefact + 0.01 * rng.normal(size=n)}
    columns |= {"global_signal": rng.normal(size=n)}
    columns |= {name: 0.1 * rng.normal(size=n) for name in MOTION}
    for name in list(columns):
        derivative = np.concatenate([[np.nan], np.diff(columns[name])])
        columns[f"{name}_derivative1"] = derivative
        columns[f"{name}_power2"], columns[f"{name}_derivative1_power2"] = columns[name] ** 2, derivative**2
    fd = np.concatenate([[np.nan], rng.uniform(0.05, 0.3, n - 1)])
    fd[[20 + 9 * k for k in range(outliers)]] = 2.0
    columns |= {"framewise_displacement": fd, "std_dvars": np.concatenate([[np.nan], np.ones(n - 1)])}
    columns |= {f"cosine{k:02d}": np.cos(np.pi * (k + 1) * (np.arange(n) + 0.5) / n) for k in range(2)}
    table = pd.DataFrame(columns).assign(words="none")
    table.to_csv(path, sep="\t", index=False, na_rep="n/a")
    path.with_suffix(".json").write_text("{}")
    return table
