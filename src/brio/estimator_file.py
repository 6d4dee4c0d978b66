"""The file of a fitted estimator: one safetensors file with the weights, and all else as JSON in its header."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from .errors import BrioError
from .methods import find_method, make_method
from .protocol import Fold
from .training import FittedRun, Method, Run, group_tensors

__all__ = ["StoredModel", "read_model", "write_model"]

FORMAT = 2
"""Version of the file format."""

_RUN_FIELDS = ("validation_auc", "selected_epoch", "trained_epochs", "block_length", "details")
_NAMES_IN_FILE = {"one_class_sites_": "left_out_sites_"}  # what version 0.1.0 called it
_NAMES = {stored: name for name, stored in _NAMES_IN_FILE.items()}


@dataclass(frozen=True, eq=False)
class StoredModel:
    """What a file holds of a fitted estimator.

    Attributes
    ----------
    params : dict
        Parameters of the estimator.
    attributes : dict
        Fitted attributes by name, such as ``source_sites_``, which are plain values.
    classes : ndarray, shape [2]
    method : Method
    fitted : FittedRun
    """

    params: dict[str, Any]
    attributes: dict[str, Any]
    classes: np.ndarray
    method: Method
    fitted: FittedRun


def write_model(path: str | Path, model: StoredModel) -> None:
    """Write a fitted model; an existing file is replaced when the new one is complete.

    Parameters
    ----------
    path : str or Path
    model : StoredModel
        A ``random_state`` that is not an integer is not written.
    """
    params = dict(model.params)
    if not isinstance(params["random_state"], int | np.integer):
        params["random_state"] = None
    header = {
        "format": FORMAT,
        "params": params,
        "version": model.method.version,
        "settings": asdict(model.method.settings),
        "fitted": {_NAMES_IN_FILE.get(name, name): value for name, value in model.attributes.items()},
        "classes": [str(model.classes.dtype), model.classes.tolist()],
        "run": {name: getattr(model.fitted, name) for name in _RUN_FIELDS},
    }
    text = json.dumps(header, default=lambda value: value.tolist())
    weights = {name: t.clone().contiguous() for name, t in model.fitted.tensors.items()}
    part = Path(f"{os.fspath(path)}.part")
    save_file(weights, part, metadata={"brio": text})
    part.replace(path)  # whole or not at all


def read_model(path: str | Path) -> StoredModel:
    """Read a model that :func:`write_model` wrote, and warn if another version of its method wrote it.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    StoredModel
        Its fitted run has no scans.

    Raises
    ------
    BrioError
        If the file is not such a model, or of another format.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["brio"])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise BrioError(f"{path}: not a model that BrioClassifier.save wrote ({error})") from None
    if header["format"] != FORMAT:
        raise BrioError(f"{path}: format {header['format']}, this version of brio reads {FORMAT}")
    name, settings = header["params"]["method"], header["settings"]
    method = make_method(name, {k: v for k, v in settings.items() if k not in find_method(name).fixed})
    if method.version != header["version"]:
        warnings.warn(
            f"{path}: written by version {header['version']} of method '{name}', this is version {method.version}; "
            "its margins may differ",
            stacklevel=3,
        )
    attributes: dict[str, Any] = {
        _NAMES.get(stored, stored): tuple(value) if isinstance(value, list) else value
        for stored, value in header["fitted"].items()
    }
    dtype, classes = header["classes"]
    parameters, state = group_tensors(weights)
    none = np.empty(0, dtype=np.int64)
    sites = attributes["validation_sites_"], attributes["one_class_sites_"]
    run = Run(Fold("all", none, none, none, (), *sites), attributes["seed_"])
    fitted = FittedRun(run=run, test_logit=np.empty(0), parameters=parameters, state=state, **header["run"])
    return StoredModel(header["params"], attributes, np.array(classes, dtype=dtype), method, fitted)
