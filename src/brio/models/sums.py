"""Hashes of the files of a model folder: whether it is one, and whether it is as it was written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ..cohort.folder import HEADER, name_other_folder
from ..errors import BrioError
from ..results.files import file_error

__all__ = [
    "CARD",
    "GET_AGAIN",
    "MEAN",
    "MODEL",
    "ROIS",
    "SUMS",
    "check_sums",
    "hash_file",
    "read_known_header",
    "require_listed",
]

MODEL, ROIS, MEAN, CARD, SUMS = "model.json", "rois.tsv", "mean.safetensors", "MODEL_CARD.md", "SHA256SUMS"
GET_AGAIN = "copy the model again from where it came, or fit it again"


def check_sums(folder: Path) -> list[str]:
    """Check the hash of every file of a model; needs no torch.

    Parameters
    ----------
    folder : Path
        Of the model.

    Returns
    -------
    list of str
        Names of the files.

    Raises
    ------
    BrioError
        If the folder is no model, or a file is missing or changed.
    """
    if not (folder / MODEL).is_file() and not (folder / SUMS).is_file():
        kind = "a cohort folder" if (folder / HEADER).is_file() else name_other_folder(folder)
        other = f", but {kind}" if kind else ""
        raise BrioError(f"{folder}: is no model{other}; give a folder that 'brio fit' wrote, the scans after it")
    try:
        lines = (folder / SUMS).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise file_error(folder / SUMS, f"cannot be read ({error})", GET_AGAIN) from error
    names = []
    for line in lines:
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64 or Path(name).name != name:
            raise file_error(folder / SUMS, "was changed", GET_AGAIN)
        if not (folder / name).is_file():
            raise file_error(folder / name, "is missing", GET_AGAIN)
        if hash_file(folder / name) != digest:
            raise file_error(folder / name, "was changed or damaged since the model was written", GET_AGAIN)
        names.append(name)
    for name in (MODEL, ROIS, MEAN, CARD):
        require_listed(folder, names, name)
    return names


def read_known_header(folder: Path) -> tuple[str, ...]:
    """Read the column names of the files that a model was fitted to; needs no torch.

    Parameters
    ----------
    folder : Path
        Of the model, checked by :func:`check_sums`.

    Returns
    -------
    tuple of str
        Empty where no name appears more than once, or the model does not know.
    """
    try:
        document = json.loads((folder / MODEL).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise file_error(folder / MODEL, f"cannot be read ({error})", GET_AGAIN) from error
    training = document.get("training") if isinstance(document, dict) else None
    header = training.get("header") if isinstance(training, dict) else None  # read_model says what is wrong
    return tuple(map(str, header)) if isinstance(header, list) else ()


def require_listed(folder: Path, names: list[str], name: str) -> None:
    """Raise an error if a file of a model folder has no hash.

    Parameters
    ----------
    folder : Path
        Of the model.
    names : list of str
        Files that have one.
    name : str
    """
    if name not in names:
        raise file_error(folder / SUMS, f"has no line for {name}", GET_AGAIN)


def hash_file(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
