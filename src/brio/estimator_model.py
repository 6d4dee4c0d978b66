"""What a fitted :class:`~brio.BrioClassifier` does as a model: intervals, explanation, the folder of ``brio fit``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .cohort import Atlas, Cohort
from .connectome import Connectomes
from .device import resolve_device
from .errors import BrioError
from .estimator_input import build_unlabelled_cohort, convert_scans
from .methods import find_method
from .models import (
    Member,
    Model,
    ModelExplanation,
    check_atlas,
    complete_model,
    explain_model,
    predict_scans,
    read_model,
    write_model,
)
from .models.explain import DEFAULT_REESTIMATES as DEFAULT_EXPLAIN_REESTIMATES
from .models.fit import require_consent_to_scans
from .models.predict import DEFAULT_REESTIMATES
from .models.sums import GET_AGAIN, MODEL
from .progress import silent
from .schemas import Setting, SettingsOf, from_json
from .schemas.stored_values import Pattern
from .training import Method


@dataclass(frozen=True)
class EstimatorParams:
    """Parameters of a saved estimator, as ``model.json`` has them."""

    method: str = "brio"
    J: float | None = None
    K: float | None = None
    M: float | None = None
    T_w: float | None = None
    epochs: float | None = None
    epsilon: float | None = None
    lambda_env: float | None = None
    learning_rate: float | None = None
    patience: float | None = None
    rho_g: float | None = None
    weight_decay: float | None = None
    settings: dict[str, Setting] | None = None
    validation_sites: int | str = "auto"
    random_state: int | None = None
    device: str = "auto"
    verbose: bool | int = False


@dataclass(frozen=True)
class EstimatorRecord:
    """What ``model.json`` says of the estimator that wrote it: parameters, and the labels in sorted order."""

    params: Annotated[dict[str, Any], SettingsOf(EstimatorParams)]
    classes: tuple[bool | int | float | str, bool | int | float | str] = (0, 1)
    dtype: Annotated[str, Pattern("the type of an array", "object|bool|u?int[0-9]+|float[0-9]+|<U[0-9]{1,4}")] = "int64"

    def __post_init__(self) -> None:
        try:
            classes = np.array(self.classes, dtype=self.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise BrioError(f"classes do not have the type {self.dtype} ({error})") from None
        if classes[0] == classes[1]:
            raise BrioError("both classes have one label")


class FittedModelMixin(BaseEstimator):
    """A fitted estimator as a model that other hospitals can use."""

    _members: tuple[Member, ...]
    _training_scans: Cohort | None
    _model: Model | None
    _atlas: Atlas
    method_: Method
    classes_: np.ndarray
    device: str
    verbose: bool

    def predict_interval(self, X: Any, *, reestimates: int = DEFAULT_REESTIMATES, level: float = 0.95) -> np.ndarray:
        """Compute intervals of the probability of ``classes_[1]`` for equally many other minutes of each scan.

        They say nothing about another day, on which connectomes vary more.

        Shapes: returns [n, 2].
        """
        return self.predict_table(X, reestimates=reestimates, level=level)[["low", "high"]].to_numpy()

    def predict_table(self, X: Any, **options: Any) -> pd.DataFrame:
        """Predict scans as ``brio predict`` does: probability, interval, agreement, decision and range.

        Returns see :class:`brio.models.ScanPredictions`.
        """
        model = self.to_model()
        return predict_scans(model, self._make_cohort(X), device=self.device, **options).table

    def explain(
        self, X: Any = None, *, reestimates: int = DEFAULT_EXPLAIN_REESTIMATES, sites: bool = False
    ) -> ModelExplanation:
        """Explain what the model reads, as ``brio explain``: coefficients, patterns, regions, factors, stability."""
        model = self.to_model()
        own = self._training_scans if sites else None
        cohort = own if X is None else self._make_cohort(X)
        progress = print_progress if self.verbose else silent
        return explain_model(model, cohort, reestimates=reestimates, sites=sites, device=self.device, progress=progress)

    def to_model(self) -> Model:
        """Return the fitted model with what a new hospital needs: ranges of its scans, and the factor of intervals.

        Computed at the first call, from the scans that it was fitted to, and kept.
        """
        check_is_fitted(self)
        if self._model is None:
            if self._training_scans is None:
                raise BrioError(
                    "this copy of the estimator has lost the scans it was fitted to: call save() or predict_interval() "
                    "before it is pickled, or fit it again"
                )
            cohort = self._training_scans
            connectomes = Connectomes(cohort, resolve_device(self.device).torch_device)
            with resolve_device(self.device).network_precision():
                self._model = complete_model(self.method_, self._members, connectomes, cohort)
        return self._model

    def save(self, path: str | Path, *, holds_scans: bool = False) -> None:
        """Write the fitted model to a new folder, as ``brio fit`` does; ``brio predict`` reads it."""
        check_is_fitted(self)
        require_consent_to_scans(self.method_, holds_scans)
        model, params = self.to_model(), self.get_params(deep=False)
        if not isinstance(params["random_state"], int | np.integer):
            params["random_state"] = None
        own = {"params": params, "classes": self.classes_.tolist(), "dtype": str(self.classes_.dtype)}
        write_model(replace(model, estimator=own), path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a model that :meth:`save` or ``brio fit`` wrote."""
        if Path(path).is_file():
            raise BrioError(f"{path}: is a file of brio 0.1.0; models are folders now, so fit and save it again")
        model = read_model(path)
        fixed = find_method(model.method.name).fixed
        settings = {k: v for k, v in asdict(model.method.settings).items() if k not in fixed}
        own = EstimatorRecord({"method": model.method.name, "settings": settings})
        if model.estimator:
            own = from_json(EstimatorRecord, model.estimator, Path(path) / MODEL, GET_AGAIN)
        loaded = cls(**own.params)
        loaded.classes_ = np.array(own.classes, dtype=own.dtype)
        loaded._set_fitted(model.method, model.members, model.atlas, tuple(model.training.sites))
        loaded._model = model
        return loaded

    def _set_fitted(
        self, method: Method, members: Sequence[Member], atlas: Atlas, source_sites: tuple[str, ...]
    ) -> None:
        fitted = members[0].fitted
        self._members = tuple(members)
        self._training_scans = None
        self._model = None
        self._atlas = atlas
        self.method_ = method
        self.fitted_run_ = fitted
        self.n_features_in_ = len(atlas)
        if not atlas.is_unnamed:
            self.feature_names_in_ = atlas.rois["name"].to_numpy(dtype=object)
        self.source_sites_ = source_sites
        self.validation_sites_ = fitted.run.fold.validation_sites
        self.one_class_sites_ = fitted.run.fold.one_class_sites
        self.seed_ = fitted.run.seed
        self.validation_auc_ = fitted.validation_auc
        self.selected_epoch_ = fitted.selected_epoch
        self.block_length_ = fitted.block_length
        intercept = method.intercept(fitted)
        if intercept is not None:
            self.intercept_ = intercept

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the scans that the estimator was fitted to: copies for other processes need not carry them."""
        state: dict[str, Any] = super().__getstate__()
        return state | ({"_training_scans": None} if "_training_scans" in state else {})

    def _make_cohort(self, X: Any) -> Cohort:
        """Scans to be scored, with the ROIs of the model."""
        check_is_fitted(self)
        cohort = X if isinstance(X, Cohort) else build_unlabelled_cohort(convert_scans(X))
        check_atlas(self._atlas, cohort)
        return cohort

    def _connectomes(self, X: Any) -> Connectomes:
        """Full-scan FC of scans to be scored."""
        return Connectomes(self._make_cohort(X), resolve_device(self.device).torch_device)


def print_progress(message: str, share: float) -> None:
    """Print one line of progress."""
    print(f"[BrioClassifier] {share:4.0%} {message}")
