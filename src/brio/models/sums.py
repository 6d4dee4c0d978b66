"""The files of a model folder that are checked before torch is imported."""

from __future__ import annotations

from pathlib import Path

from ..cohort.cohort import HEADER, name_other_folder
from ..errors import BrioError
from ..results.files import read_json
from ..storage import check_all, read_sums

MODEL, ROIS, MEAN, CARD = "model.json", "rois.tsv", "mean.safetensors", "MODEL_CARD.md"
GET_AGAIN = "copy the model again from where it came, or fit it again"


def check_sums(folder: Path, scans_follow: bool = False) -> list[str]:
    """Check the hash of every file of a model, and return their names."""
    sums = read_sums(folder, GET_AGAIN)
    if not (folder / MODEL).is_file() and (sums is None or MODEL not in sums.listed):
        kind = "a cohort folder" if (folder / HEADER).is_file() else name_other_folder(folder)
        other = f", but {kind}" if kind else ""
        order = ", the scans after it" if scans_follow else ""
        raise BrioError(f"{folder}: is no model{other}; give a folder that 'brio fit' wrote{order}")
    return check_all(folder, GET_AGAIN, (MODEL, ROIS, MEAN, CARD))


def read_known_header(folder: Path) -> tuple[str, ...]:
    """Read the column names of the files that a model was fitted to."""
    training = read_json(folder / MODEL, GET_AGAIN).get("training")
    header = training.get("header") if isinstance(training, dict) else None  # read_model says what is wrong
    return tuple(map(str, header)) if isinstance(header, list) else ()
