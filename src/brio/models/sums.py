"""The files of a model folder that are checked before torch is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..cohort import Atlas
from ..cohort.cohort import HEADER, RoiRow, name_other_folder, read_table
from ..errors import BrioError
from ..results.files import read_json
from ..storage import check_all, read_sums

MODEL, ROIS, MEAN, CARD = "model.json", "rois.tsv", "mean.safetensors", "MODEL_CARD.md"
GET_AGAIN = "copy the model again from its source, or fit it again"


def check_sums(folder: Path, scans_follow: bool = False) -> list[str]:
    """Check the hash of every file of a model, and return the names of the files."""
    sums = read_sums(folder, GET_AGAIN)
    if not (folder / MODEL).is_file() and (sums is None or MODEL not in sums.listed):
        kind = "a cohort folder" if (folder / HEADER).is_file() else name_other_folder(folder)
        other = f", but {kind}" if kind else ""
        order = ", followed by the scans" if scans_follow else ""
        raise BrioError(f"{folder}: is not a model{other}; give a folder that 'brio fit' wrote{order}")
    return check_all(folder, GET_AGAIN, (MODEL, ROIS, MEAN, CARD))


def read_known_files(folder: Path) -> dict[str, Any]:
    """Read from a model how its source files were imported, as options of ``read_scans_to_predict``."""
    training = read_json(folder / MODEL, GET_AGAIN).get("training")
    stated = training if isinstance(training, dict) else {}  # read_model says what is wrong
    header, extraction = stated.get("header"), stated.get("extraction")
    return {
        "known_header": tuple(map(str, header)) if isinstance(header, list) else (),
        "known_rois": Atlas("of the model", read_table(folder / ROIS, RoiRow, GET_AGAIN)),
        "known_extraction": extraction if isinstance(extraction, dict) else None,
    }
