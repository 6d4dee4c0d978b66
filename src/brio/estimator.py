"""The scikit-learn face of brio: scans, labels and sites in, probabilities for scans of unseen sites out."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .cohort import Atlas, Cohort
from .connectome import Connectomes
from .device import resolve_device
from .errors import BrioError
from .estimator_input import build_labelled_cohort, build_unlabelled_cohort, convert_scans
from .methods import find_method, make_method
from .progress import silent
from .protocol import Fold, make_training_fold
from .training import FittedRun, Method, Run, group_tensors

__all__ = ["BrioClassifier"]

MAIN_SETTINGS = (
    *("J", "K", "M", "T_w", "epochs", "epsilon", "lambda_env"),
    *("learning_rate", "patience", "rho_g", "weight_decay"),
)
"""Settings of a method that are parameters of the estimator, so that a search can vary them."""

FORMAT = 2
"""Of the files that ``save`` writes."""

_FITTED = ("n_features_in_", "feature_names_in_", "source_sites_", "validation_sites_", "left_out_sites_", "seed_")
_FACTS = ("validation_auc", "selected_epoch", "trained_epochs", "block_length", "details")


class BrioClassifier(ClassifierMixin, BaseEstimator):
    """Classify patients and controls from their scans, at sites the model was not trained on.

    Parameters
    ----------
    method : str
        Any method that ``brio methods`` lists: ``"brio"``, its ablations, ``"ridge"``, ...
    J, K, M, T_w, epochs, epsilon, lambda_env, learning_rate, patience, rho_g, weight_decay : optional
        Main settings of the method, see :class:`brio.methods.BrioSettings`; None is the method's own default.
        A setting that the method does not have is an error.
    settings : dict, optional
        Any other settings of the method by name, for instance ``{"cell_batch": 8}``.
        ``{"patience": None}`` trains to the last epoch.
    validation_sites : int
        Sites of the training set that choose the checkpoint and are not learned from, but with
        ``settings={"refit": True}``, where the network is then trained again on all sites.
    random_state : int, RandomState or None
        Draws the validation sites, the initial weights, the batches and the re-estimates.
    device : {"auto", "cpu", "cuda", "cuda-tf32"}
    verbose : bool
        Print a line for each epoch.

    Attributes
    ----------
    classes_ : ndarray, shape [2]
        The labels in sorted order; probabilities and margins speak for the second.
    n_features_in_ : int
        ROIs of a scan. Scans are time series: the number of frames is free and may differ from scan to scan.
    feature_names_in_ : ndarray of str
        Names of the ROIs; only where the model was fitted to a cohort with a named atlas.
    source_sites_, validation_sites_, left_out_sites_ : tuple of str
        Sites that were learned from, that chose the checkpoint, and that could do neither as they hold one class.
    validation_auc_ : float
        AUC on the validation sites at the chosen checkpoint. It is the best of many, hence optimistic.
    selected_epoch_ : int or None
        Epoch of the checkpoint, counted from 1; None where the method has no epochs.
    block_length_ : float or None
        Block length of the re-estimates in frames; None where nothing was re-estimated.
    method_ : Method
        The method with its settings.
    fitted_run_ : FittedRun
        What the run left behind: weights and notes.
    intercept_ : float
        Bias of the margin, see :meth:`contributions`; only where the method has factors.
    seed_ : int
        The seed drawn from ``random_state``.

    Notes
    -----
    ``X`` is a list of arrays of shape [T_i, P] (or an array of objects), one array of shape [n, T, P],
    or a :class:`brio.Cohort`. Frames with missing values are dropped; an ROI without signal is allowed.

    A Cohort cannot be split by scikit-learn; give ``[cohort.scan(i) for i in range(len(cohort))]`` to
    ``cross_validate``. Inside it every training set needs ``validation_sites + 2`` sites with both classes.

    Examples
    --------
    Sixty scans of unequal length from six sites; two ROIs go together in patients.

    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from brio.protocol.splitters import LeaveOneSiteOut
    >>> rng = np.random.default_rng(0)
    >>> y = np.array(["control", "patient"] * 30)
    >>> sites = np.repeat(["KKI", "NYU", "Olin", "Pitt", "UCLA", "Yale"], 10)
    >>> X = [rng.normal(size=(rng.integers(60, 90), 8)) for _ in y]
    >>> for scan, label in zip(X, y):
    ...     scan[:, 1] += (label == "patient") * scan[:, 0]

    >>> model = BrioClassifier(J=2, epochs=12, T_w=4, random_state=0).fit(X, y, sites=sites)
    >>> model.predict_proba(X[:4]).shape, model.contributions(X[:4]).shape
    ((4, 2), (4, 2))

    In cross-validation, ``groups`` goes to the splitter and ``params`` to ``fit``:

    >>> ridge = BrioClassifier("ridge", random_state=0)
    >>> cross_val_score(ridge, X, y, scoring="roc_auc", cv=LeaveOneSiteOut(), groups=sites, params={"sites": sites})
    array([1., 1., 1., 1., 1., 1.])

    With metadata routing the splitter can ask for the same sites:

    >>> import sklearn
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     cv = LeaveOneSiteOut().set_split_request(groups="sites")
    ...     cross_val_score(ridge, X, y, scoring="roc_auc", cv=cv, params={"sites": sites})
    array([1., 1., 1., 1., 1., 1.])
    """

    __metadata_request__fit = {"sites": True}  # noqa: RUF012 (read by scikit-learn's metadata routing)

    def __init__(
        self,
        method: str = "brio",
        *,
        J: int | None = None,
        K: int | None = None,
        M: int | None = None,
        T_w: int | None = None,
        epochs: int | None = None,
        epsilon: float | None = None,
        lambda_env: float | None = None,
        learning_rate: float | None = None,
        patience: int | None = None,
        rho_g: float | None = None,
        weight_decay: float | None = None,
        settings: Mapping[str, Any] | None = None,
        validation_sites: int = 2,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.J = J
        self.K = K
        self.M = M
        self.T_w = T_w
        self.epochs = epochs
        self.epsilon = epsilon
        self.lambda_env = lambda_env
        self.learning_rate = learning_rate
        self.patience = patience
        self.rho_g = rho_g
        self.weight_decay = weight_decay
        self.settings = settings
        self.validation_sites = validation_sites
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> BrioClassifier:
        """Learn from scans of several sites.

        Parameters
        ----------
        X : sequence of arrays of shape [T_i, P], array of shape [n, T, P], or Cohort
        y : sequence of n labels
            Two different values. May be left out for a Cohort; ``classes_`` are then 0 and 1.
        sites : sequence of n site names or numbers
            May be left out for a Cohort.

        Returns
        -------
        self
        """
        cohort, classes = build_labelled_cohort(X, y, sites)
        method = self._make_method()
        device = resolve_device(self.device)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        if self.validation_sites < 1 and method.needs_validation:
            raise BrioError(f"validation_sites={self.validation_sites}: at least one site must choose the checkpoint")
        fold = make_training_fold(cohort, seed, self.validation_sites)
        if fold.left_out:
            warnings.warn(f"one class only at {', '.join(fold.left_out)}: not learned from", stacklevel=2)
        progress = _tell if self.verbose else silent
        with device.network_precision():
            (fitted,) = method.fit(Connectomes(cohort, device.torch_device), [Run(fold, seed)], progress)
        fitted.require_finite(method.name)
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of an earlier fit, perhaps of another method
        self.classes_ = classes
        self.n_features_in_ = cohort.n_rois
        if _is_named(cohort.atlas):
            self.feature_names_in_ = cohort.atlas.rois["name"].to_numpy(dtype=object)
        self.source_sites_ = tuple(np.unique(cohort.sites[method.training_scans(cohort, fold)]).tolist())
        self.validation_sites_ = fold.validation_sites
        self.left_out_sites_ = fold.left_out
        self.seed_ = seed
        self._keep(method, fitted)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Logit margins for ``classes_[1]``. Shape [n]."""
        connectomes = self._connectomes(X)
        with resolve_device(self.device).network_precision():
            return self.method_.predict_margins(self.fitted_run_, connectomes, np.arange(len(connectomes)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of both classes, the logistic function of the margins. Shape [n, 2].

        Networks are trained to make these probabilities; ridge regression is not, its margins are merely ordered.
        """
        margin = self.decision_function(X)
        return np.stack([expit(-margin), expit(margin)], axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The more probable label of each scan. Shape [n]."""
        margin = self.decision_function(X)
        return self.classes_[(margin > 0).astype(np.int64)]

    def contributions(self, X: Any) -> np.ndarray:
        """Contributions a of the connectome factors to the margins, Eq. (10). Shape [n, J].

        ``contributions(X).sum(1) / sqrt(J) + intercept_`` is :meth:`decision_function`. Only methods with
        factors (BRIO, its ablations, BRIO plus) have contributions.
        """
        connectomes = self._connectomes(X)
        scans = self.method_.gather_inputs(connectomes).take(torch.arange(len(connectomes), device=connectomes.device))
        with resolve_device(self.device).network_precision():
            return self.method_.contributions(self.fitted_run_, scans)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one safetensors file: weights, and all else as JSON in its header.

        A ``random_state`` that is not an integer is not written.
        """
        check_is_fitted(self)
        params = self.get_params(deep=False)
        if not isinstance(params["random_state"], int | np.integer):
            params["random_state"] = None
        header = {
            "format": FORMAT,
            "params": params,
            "version": self.method_.version,
            "settings": asdict(self.method_.settings),
            "fitted": {name: getattr(self, name) for name in _FITTED if hasattr(self, name)},
            "classes": [str(self.classes_.dtype), self.classes_.tolist()],
            "run": {name: getattr(self.fitted_run_, name) for name in _FACTS},
        }
        text = json.dumps(header, default=lambda value: value.tolist())
        weights = {name: t.clone().contiguous() for name, t in self.fitted_run_.tensors.items()}
        part = Path(f"{os.fspath(path)}.part")
        save_file(weights, part, metadata={"brio": text})
        part.replace(path)  # whole or not at all

    @classmethod
    def load(cls, path: str | Path) -> BrioClassifier:
        """A fitted model as :meth:`save` wrote it."""
        try:
            with safe_open(path, framework="pt") as file:
                header = json.loads((file.metadata() or {})["brio"])
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except (OSError, SafetensorError, KeyError, json.JSONDecodeError) as error:
            raise BrioError(f"{path}: not a model that BrioClassifier.save wrote ({error})") from None
        if header["format"] != FORMAT:
            raise BrioError(f"{path}: format {header['format']}, this version of brio reads {FORMAT}")
        model = cls(**header["params"])
        fixed = find_method(model.method).fixed
        method = make_method(model.method, {k: v for k, v in header["settings"].items() if k not in fixed})
        if method.version != header["version"]:
            warnings.warn(
                f"{path}: written by version {header['version']} of method '{model.method}', this is version "
                f"{method.version}; its margins may differ",
                stacklevel=2,
            )
        for name, value in header["fitted"].items():
            setattr(model, name, tuple(value) if isinstance(value, list) else value)
        if hasattr(model, "feature_names_in_"):
            model.feature_names_in_ = np.array(model.feature_names_in_, dtype=object)
        dtype, classes = header["classes"]
        model.classes_ = np.array(classes, dtype=dtype)
        parameters, state = group_tensors(weights)
        none = np.empty(0, dtype=np.int64)
        run = Run(Fold("all", none, none, none, (), model.validation_sites_, model.left_out_sites_), model.seed_)
        model._keep(
            method, FittedRun(run=run, test_logit=np.empty(0), parameters=parameters, state=state, **header["run"])
        )
        return model

    def _make_method(self) -> Method:
        if not isinstance(self.settings, Mapping | None):
            raise BrioError(f"settings={self.settings!r}: give a dictionary of the method's settings")
        main = {name: getattr(self, name) for name in MAIN_SETTINGS if getattr(self, name) is not None}
        others = dict(self.settings or {})
        twice = sorted(main.keys() & others.keys())
        if twice:
            raise BrioError(f"'{twice[0]}' is given twice, as a parameter and in settings; keep one")
        return make_method(self.method, main | others)

    def _keep(self, method: Method, fitted: FittedRun) -> None:
        self.method_ = method
        self.fitted_run_ = fitted
        self.validation_auc_ = fitted.validation_auc
        self.selected_epoch_ = fitted.selected_epoch
        self.block_length_ = fitted.block_length
        intercept = method.intercept(fitted)
        if intercept is not None:
            self.intercept_ = intercept

    def _connectomes(self, X: Any) -> Connectomes:
        """Full-scan FC of scans to be scored."""
        check_is_fitted(self)
        cohort = X if isinstance(X, Cohort) else build_unlabelled_cohort(convert_scans(X))
        if cohort.n_rois != self.n_features_in_:
            raise BrioError(f"X has {cohort.n_rois} ROIs, but the model was fitted to {self.n_features_in_}")
        learned = getattr(self, "feature_names_in_", None)
        if learned is not None and _is_named(cohort.atlas):
            names = cohort.atlas.rois["name"].to_numpy(dtype=object)
            for u in np.flatnonzero(names != learned)[:1]:
                raise BrioError(f"ROI {u + 1} of X is {names[u]}, but the model was fitted to {learned[u]} there")
        return Connectomes(cohort, resolve_device(self.device).torch_device)


def _is_named(atlas: Atlas) -> bool:
    return atlas.name != "unknown"


def _tell(message: str, share: float) -> None:
    print(f"[BrioClassifier] {share:4.0%} {message}")
