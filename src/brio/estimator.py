"""The scikit-learn estimator, which makes a cohort from its arguments (scans, labels, sites) and fits a model to it."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self, get_type_hints

import numpy as np
import pandas as pd
import torch
from msgspec import Meta
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import assert_all_finite, check_consistent_length, check_is_fitted, column_or_1d

from .cohort import Atlas, Cohort
from .cohort.cohort import check_participants, format_table, locate_scans
from .cohort.scans import FC_ONLY, convert_fc, convert_frames, holds_fc, refuse_fc
from .cohort.values import fold_value
from .connectome import Connectomes
from .console import silent
from .device import resolve_device
from .errors import BrioError
from .jobs.job import check_frames, check_memory
from .methods import find_method
from .models.explain import EXPLAINED_REESTIMATES, ModelExplanation, explain_model
from .models.fit import complete_model, define_final_model, require_consent_to_scans
from .models.folder import read_model, write_model
from .models.model import Ensemble, Member, Model, check_atlas
from .models.predict import PREDICTION_REESTIMATES, predict_scans
from .models.sums import GET_AGAIN, MODEL
from .schemas import Setting, check_fields, from_json
from .settings import ValidationSites, check_types, require_number
from .training import Method


def convert_scans(X: Any) -> list[np.ndarray]:
    """Convert scans to a list of float32 arrays.

    Shapes: X [T_i, P]; returns [T_i, P].
    """
    if sparse.issparse(X):
        raise BrioError("X is sparse; give dense arrays of shape (frames, ROIs)")
    if hasattr(X, "__array__") and not hasattr(X, "shape"):
        X = np.asarray(X)
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape) == 2:
        remedy = "give a list of arrays (frames, ROIs), or use kind='connectome' for vectorised correlations"
        raise BrioError(f"X has shape {tuple(shape)}, like one scan or a table; {remedy}")
    if shape is not None and len(shape) not in (1, 3):
        raise BrioError(f"X has shape {tuple(shape)}; give a list of time series or one array (scans, frames, ROIs)")
    try:
        items = list(X)
    except TypeError:
        raise BrioError(f"X has type {type(X).__name__}; give a list of arrays (frames, ROIs)") from None
    if not items:
        raise BrioError("X contains no scans")
    scans = [_convert_scan(item, f"X[{i}]") for i, item in enumerate(items)]
    n_rois = scans[0].shape[1]
    for i, scan in enumerate(scans):
        if scan.shape[1] != n_rois:
            turned = ", or transpose them if their rows are ROIs" if len({len(one) for one in scans}) == 1 else ""
            problem = f"X[{i}] has {scan.shape[1]} ROIs, but X[0] has {n_rois}"
            raise BrioError(f"{problem}; use one atlas for all scans{turned}")
    return scans


def _convert_scan(item: Any, where: str) -> np.ndarray:
    """Convert one scan to float32. Shape [T, P]."""
    masked = isinstance(item, np.ma.MaskedArray)
    try:
        array = item if masked else np.asarray(item)
        if array.dtype.kind in "OSU":
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise BrioError(f"{where} is not an array of numbers") from None
    if np.iscomplexobj(array):
        raise BrioError(f"{where}: Complex data not supported")
    if array.ndim != 2:
        raise BrioError(f"{where} has shape {array.shape}; a scan must have shape (frames, ROIs)")
    frames = convert_frames(array, where)
    refuse_fc(frames, where)
    return frames


def convert_connectomes(X: Any) -> list[np.ndarray]:
    """Convert correlations [n, P, P], or correlations that nilearn vectorised [n, edges], to Fisher z [P, P]."""
    needed = "kind='connectome' needs correlations, as an array (n, ROIs, ROIs) or vectorised by nilearn"
    try:
        values = np.ma.filled(np.ma.asarray(X).astype(np.float64, casting="same_kind"), np.nan)
    except (TypeError, ValueError):
        raise BrioError(f"X is not one array of real numbers; {needed}") from None
    matrices = _unfold_edges(values) if values.ndim == 2 else values
    if matrices is None or matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
        raise BrioError(f"X has shape {values.shape}; {needed}")
    if len(matrices) == 0:
        raise BrioError("X contains no connectomes")
    largest = np.abs(matrices[np.isfinite(matrices)]).max(initial=0.0)
    if largest > 1 + 1e-3:
        beyond = f"X contains absolute values up to {largest:.7g}, but correlations are at most 1"
        raise BrioError(f"{beyond}; use ConnectivityMeasure(kind='correlation')")
    diagonal = np.diagonal(matrices, axis1=1, axis2=2)
    odd = diagonal[
        (values.ndim == 3) & np.isfinite(diagonal) & (np.abs(diagonal) > 1e-3) & (np.abs(diagonal - 1) > 1e-3)
    ]
    if odd.size:
        beyond = f"X has {odd[0]:.3g} on a diagonal, but the correlation of a region with itself is 1"
        raise BrioError(f"{beyond}; use ConnectivityMeasure(kind='correlation')")
    return [convert_fc(matrix.clip(-1, 1), "correlation", f"X[{i}]") for i, matrix in enumerate(matrices)]


def _unfold_edges(edges: np.ndarray) -> np.ndarray | None:
    """Unfold lower triangles to [n, P, P], None if none fits; of a diagonal, the entries are alike in all scans."""
    p = int(np.sqrt(2 * edges.shape[1]))  # rows of the triangle with its diagonal
    if p * (p + 1) != 2 * edges.shape[1] or p == 0:
        return None
    i, j = np.tril_indices(p)
    diagonal = edges[:, i == j]
    known = diagonal[np.isfinite(diagonal) & (diagonal != 0)]  # others are of ROIs without signal
    if known.size and np.ptp(known) > 1e-3:
        p += 1
        i, j = np.tril_indices(p, -1)
    matrices = np.zeros((len(edges), p, p))
    matrices[:, i, j] = matrices[:, j, i] = edges
    return matrices


def _refuse_masked(values: Any, name: str) -> None:
    """Refuse masked labels and sites: without their mask, they would be taken as they are."""
    if np.ma.is_masked(values):
        raise BrioError(f"{name}[{int(np.flatnonzero(np.ma.getmaskarray(values))[0])}] is masked; leave out the scan")


def encode_labels(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Encode any two labels as 0 and 1.

    Shapes: returns classes [2], label [n].
    """
    _refuse_masked(y, "y")
    y = column_or_1d(y, warn=True)
    if np.iscomplexobj(y):
        raise BrioError("y: Complex data not supported")
    assert_all_finite(y, input_name="y")
    if len(y) == 0:
        raise BrioError("y contains no labels")
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind != "binary":
        remedy = "Turn numbers into two classes, as in y > 14.5, or leave out all but two classes."
        raise BrioError(f"Only binary classification is supported. The type of the target is {kind}. {remedy}")
    classes, label = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise BrioError(f"y has only one class ({classes[0]}), but two are needed")
    if len({*map(fold_value, classes)} - {""}) < 2:
        raise BrioError(f"y has the labels '{classes[0]}' and '{classes[1]}'; give two different names")
    return classes, label


def build_labelled_cohort(X: Any, y: Any, sites: Any, kind: str = "scans") -> tuple[Cohort, np.ndarray]:
    """Build the cohort that an estimator is fitted to.

    Shapes: X [T_i, P], or connectomes [n, P, P] or [n, edges]; returns classes [2].
    """
    if kind not in CONVERT:
        raise BrioError(f"kind={kind!r}: give {' or '.join(map(repr, CONVERT))}")
    is_cohort, own_labels = isinstance(X, Cohort), y is None and sites is None
    if is_cohort:
        X.verify()
        y = X.labels if y is None else y
        sites = X.sites if sites is None else sites
    if y is None:
        raise BrioError("BrioClassifier requires y to be passed, but the target y is None")
    classes, label = encode_labels(y)
    scans = None if is_cohort else CONVERT[kind](X)
    if sites is None:
        raise BrioError(
            "fit needs the site of every scan: pass sites=sites, or params={'sites': sites} to cross_validate"
        )
    _refuse_masked(sites, "sites")
    sites = column_or_1d(sites)
    check_consistent_length(range(len(X if scans is None else scans)), label, sites)
    names = (str(classes[0]), str(classes[1]))
    if scans is None:
        if own_labels:
            return X, classes
        table = check_participants(X.participants.assign(site=sites, label=label), "X")
        fingerprint = hashlib.sha256(f"{X.fingerprint}{format_table(table)}".encode()).hexdigest()
        if classes.tolist() == [0, 1]:  # labels as the cohort has them
            names = X.classes
        return replace(X, participants=table, fingerprint=fingerprint, path=None, classes=names), classes
    own = _describe_rows(len(scans), kind)
    rows: dict[str, Any] = {"participant_id": own.pop("participant_id").tolist(), "covariates": own}
    return Cohort.from_scans(scans, site=sites, label=label.tolist(), classes=names, **rows), classes


def _describe_rows(n: int, kind: str) -> pd.DataFrame:
    """Make the table of scans without names; connectomes are marked as such."""
    table = pd.DataFrame({"participant_id": [f"X[{i}]" for i in range(n)]})
    return table if kind == "scans" else table.assign(**{FC_ONLY: 1})


CONVERT = {"scans": convert_scans, "connectome": convert_connectomes}  # what X may hold


ARRAY_TYPE = Meta(
    pattern=r"\A(?:object|bool|u?int[0-9]+|float[0-9]+|<U[0-9]{1,4})\Z", description="the type of an array"
)


def print_progress(message: str, share: float) -> None:
    """Print one line of progress."""
    print(f"[BrioClassifier] {share:4.0%} {message}")


MAIN_SETTINGS = (
    *("J", "K", "M", "T_w", "epochs", "epsilon", "lambda_env"),
    *("learning_rate", "patience", "rho_g", "weight_decay"),
)
"""Settings of methods that are also parameters of the estimator, so that a search can vary them."""


@dataclass(eq=False, repr=False)
class BrioClassifier(ClassifierMixin, BaseEstimator):
    """Classify patients and controls from their scans, at sites on which the model was not trained.

    Parameters
    ----------
    method : str
        Name of a method; ``brio methods`` lists all names. The recommended default is ridge regression on
        log-connectomes.
    kind : {"scans", "connectome"}
        Content of ``X``. ``"connectome"`` means correlations [n, P, P], or correlations vectorised by nilearn's
        ``ConnectivityMeasure``. Methods that need frames, such as BRIO, do not accept connectomes. With connectomes,
        the model cannot be saved or explained, and it has no prediction intervals.
    random_state : int, RandomState or None
        An integer is used as the seed; otherwise the seed is drawn. The seed determines the validation sites, the
        initial weights, the batches and the re-estimates.
    validation_sites : int or "auto"
        Number of sites used to choose the epoch of a neural network. The network is then trained again up to that
        epoch on all sites with both classes, unless ``settings={"refit": False}``. If 0, inner folds choose the epoch.
        ``auto`` means 2 if at least four sites have both classes, and otherwise 0. Closed-form models, except
        for ``core-scaffold``, use validation sites only with ``settings={"choose_by": "validation"}``; by default,
        inner folds choose their penalty.
    settings : dict, optional
        Settings of the method by name, for instance ``{"shrinkage": 0.3}``; ``brio settings METHOD`` lists them.
    device : {"auto", "cpu", "cuda", "cuda-tf32"}
        Device for the computation. ``auto`` uses a GPU if there is one; ``cuda-tf32`` uses a GPU, with TF32 for matrix
        products in neural networks.
    verbose : bool
        Whether to print progress.
    J, K, M, T_w, epochs, patience : int, optional
        Settings of methods, mostly of BRIO, as separate parameters that a search can vary. None means the method's
        default; ``settings={"patience": None}`` trains to the last epoch.
    epsilon, lambda_env, learning_rate, rho_g, weight_decay : float, optional
        Further settings of methods, mostly of BRIO.

    Attributes
    ----------
    classes_ : ndarray, shape [2]
        The labels in sorted order. Positive logits indicate the second label.
    n_features_in_ : int
        Number of ROIs, also if ``X`` contains vectorised connectomes.
    feature_names_in_ : ndarray of str
        Names of the ROIs. Exists only if the model was fitted to a cohort with a named atlas.
    source_sites_, validation_sites_, one_class_sites_ : tuple of str
        The model was trained on ``source_sites_``, which include the validation sites after a refit. The epoch or
        penalty was chosen on ``validation_sites_``, if there are any. ``one_class_sites_`` were not used, because they
        have only one class.
    validation_auc_ : float
        AUC on the validation sites at the chosen epoch or penalty; without validation sites, the AUC on the inner
        folds. As the best of several values, it is usually optimistic.
    selected_epoch_ : int or None
        Chosen epoch, counted from 1; None if the method has no epochs.
    block_length_ : float or None
        Block length of the re-estimates in frames; None if nothing was re-estimated.
    method_ : Method
        The method with its settings.
    fitted_run_ : FittedRun
        The fitted run, with its weights.
    intercept_ : float
        Bias of the margin (see :meth:`contributions`). Exists only if the method has factors.
    seed_ : int
        The integer ``random_state``, or the seed drawn from it.

    Notes
    -----
    If ``X`` is a Cohort, ``random_state=0`` gives the model of ``brio fit --seeds 1 --keep-all`` with the same
    settings. Without ``--keep-all``, ``brio fit`` excludes scans that fail its audit; the estimator excludes none.

    Frames with missing values are dropped; ROIs without signal are allowed.

    scikit-learn cannot split a Cohort: pass ``[cohort.scan(i) for i in range(len(cohort))]`` to ``cross_validate``. A
    method that uses validation sites needs ``validation_sites + 2`` sites with both classes in every training set.
    Without validation sites, one such site is enough to fit and score, but a model needs two to be saved or explained,
    or to give prediction intervals.

    Examples
    --------
    The data are sixty random scans of different lengths from six sites. In patients, the first two ROIs are correlated.

    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from brio import LeaveOneSiteOut
    >>> rng = np.random.default_rng(0)
    >>> y = np.array(["control", "patient"] * 30)
    >>> sites = np.repeat(["KKI", "NYU", "Olin", "Pitt", "UCLA", "Yale"], 10)
    >>> X = [rng.normal(size=(rng.integers(60, 90), 8)) for _ in y]
    >>> for scan, label in zip(X, y):
    ...     scan[:, 1] += (label == "patient") * scan[:, 0]

    >>> model = BrioClassifier(random_state=0).fit(X, y, sites=sites)
    >>> model.predict_proba(X[:4]).shape
    (4, 2)
    >>> model.predict(X[:4]).tolist()
    ['control', 'patient', 'control', 'patient']

    In cross-validation, the splitter receives ``groups``, and ``fit`` receives ``params``:

    >>> model = BrioClassifier(random_state=0)
    >>> cross_val_score(model, X, y, scoring="roc_auc", cv=LeaveOneSiteOut(), groups=sites, params={"sites": sites})
    array([1., 1., 1., 1., 1., 1.])

    With metadata routing, the splitter can request the same sites:

    >>> import sklearn
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     cv = LeaveOneSiteOut().set_split_request(groups="sites")
    ...     cross_val_score(model, X, y, scoring="roc_auc", cv=cv, params={"sites": sites})
    array([1., 1., 1., 1., 1., 1.])

    In a pipeline, the estimator can follow nilearn's ``ConnectivityMeasure``:

    >>> from nilearn.connectome import ConnectivityMeasure
    >>> from sklearn.covariance import EmpiricalCovariance
    >>> from sklearn.pipeline import make_pipeline
    >>> fc = ConnectivityMeasure(EmpiricalCovariance(), kind="correlation", vectorize=True, discard_diagonal=True)
    >>> pipeline = make_pipeline(fc, BrioClassifier(kind="connectome", random_state=0))
    >>> pipeline.fit(X, y, brioclassifier__sites=sites).predict_proba(X[:4]).shape
    (4, 2)

    BRIO also returns the contributions of its factors. Here it is trained for a few epochs only:

    >>> brio = BrioClassifier("brio", J=2, epochs=12, T_w=4, random_state=0).fit(X, y, sites=sites)
    >>> brio.contributions(X[:4]).shape
    (4, 2)
    """

    __metadata_request__fit = {"sites": True}  # noqa: RUF012 (read by scikit-learn's metadata routing)

    method: str = "log-ridge"
    _: KW_ONLY
    kind: str = "scans"
    random_state: int | np.random.RandomState | None = None
    validation_sites: int | str = "auto"
    settings: Mapping[str, Any] | None = None
    device: str = "auto"
    verbose: bool = False
    J: int | None = None
    K: int | None = None
    M: int | None = None
    T_w: int | None = None
    epochs: int | None = None
    patience: int | None = None
    epsilon: float | None = None
    lambda_env: float | None = None
    learning_rate: float | None = None
    rho_g: float | None = None
    weight_decay: float | None = None
    _training_scans: Cohort | None = field(init=False)
    _model: Model | None = field(init=False)
    method_: Method = field(init=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None, *, sites: Any = None) -> BrioClassifier:
        """Fit the model to scans of one or more sites. Sites with only one class are ignored, with a warning.

        Parameters
        ----------
        X : sequence of arrays of shape [T_i, P], array of shape [n, T, P], or Cohort; or connectomes, see ``kind``
        y : sequence of n labels
            Labels with two different values. Optional for a Cohort; without ``y``, ``classes_`` are 0 and 1.
        sites : sequence of n site names or numbers
            The site of each scan. Optional for a Cohort.

        Returns
        -------
        self

        Raises
        ------
        BrioError
            If labels, sites or settings are not valid, too few sites have both classes, or training diverges.
        """
        check_types(BrioClassifier, {name: getattr(self, name) for name in ("method", "kind", "device", "settings")})
        cohort, classes = build_labelled_cohort(X, y, sites, self.kind)
        device = resolve_device(self.device)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)  # refuses what is none
        if isinstance(self.random_state, int | np.integer):
            seed = self.random_state  # as 'brio fit' counts its seeds
        if self.validation_sites != "auto":  # checked here, since closed-form models do not read it
            require_number(self.validation_sites, ValidationSites, "validation_sites")
        values = {name: getattr(self, name) for name in MAIN_SETTINGS if getattr(self, name) is not None}
        twice = sorted(values.keys() & (self.settings or {}).keys())
        if twice:
            raise BrioError(f"'{twice[0]}' is given twice, as a parameter and in settings; keep one")
        values |= self.settings or {}
        method, runs = define_final_model(self.method, values, cohort, [int(seed)], self.validation_sites)
        check_frames(method, cohort)
        check_memory([method], cohort, device)
        fold = runs[0].fold
        if fold.one_class_sites:
            warnings.warn(f"sites not used (only one class): {', '.join(fold.one_class_sites)}", stacklevel=2)
        progress = print_progress if self.verbose else silent
        with device.network_precision():
            (fitted,) = method.fit(Connectomes(cohort, device.torch_device), runs, progress)
        fitted.require_finite(method.name)
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of an earlier fit, perhaps of another method
        sites = np.unique(cohort.sites[method.training_scans(cohort, fold)])
        self._set_fitted(method, [Member(fitted)], cohort.atlas, tuple(sites.tolist()))
        self._training_scans = cohort
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Compute the logits, as in the column ``logit`` of ``predictions.csv``.

        For ``ridge``, ``svm``, ``tangent-ridge`` and ``fc-tangent-ridge``, the logits are margins that were calibrated
        on inner folds. For the other methods of brio, they are the margins. A loaded model that was adapted to a
        hospital returns adapted logits. Calibration can change predicted classes: ``brio run`` predicts classes from
        the margins, and :meth:`predict` from the logits.

        Parameters
        ----------
        X : scans
            As for :meth:`fit`.

        Returns
        -------
        ndarray of float64, shape [n]
            Logits; values above 0 indicate ``classes_[1]``.

        Raises
        ------
        BrioError
            If the scans and the fitted model have different ROIs.
        """
        connectomes = self._connectomes(X)
        with resolve_device(self.device).network_precision():
            return self._ensemble.average_members(self._ensemble.collect_margins(connectomes))[0]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Compute the probabilities of both classes: the logistic function of :meth:`decision_function`.

        Parameters
        ----------
        X : scans
            As for :meth:`fit`.

        Returns
        -------
        ndarray of float64, shape [n, 2]
            Probabilities in the order of ``classes_``.
        """
        logit = self.decision_function(X)
        return np.stack([expit(-logit), expit(logit)], axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """Predict the more probable label of each scan.

        Parameters
        ----------
        X : scans
            As for :meth:`fit`.

        Returns
        -------
        ndarray, shape [n]
            Predicted labels (values of ``classes_``).
        """
        logit = self.decision_function(X)
        return self.classes_[(logit > 0).astype(np.int64)]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Compute the accuracy: the share of scans whose label is predicted correctly.

        Parameters
        ----------
        X : scans
            As for :meth:`fit`.
        y : sequence of n labels, optional
            Labels of the scans. Optional for a Cohort, whose labels 0 and 1 mean ``classes_[0]`` and
            ``classes_[1]``.
        sample_weight : sequence of n numbers, optional

        Returns
        -------
        float
        """
        if y is None and isinstance(X, Cohort):
            check_is_fitted(self)
            y = self.classes_[X.labels]
        if y is None:
            raise BrioError("y=None: give the label of every scan, as in score(X, y), or a Cohort with labels")
        return float(super().score(X, y, sample_weight))

    def contributions(self, X: Any) -> np.ndarray:
        """Compute the contributions of the connectome factors to the margins, Eq. (10).

        ``contributions(X).sum(1) / sqrt(J) + intercept_`` equals :meth:`decision_function`. Of the methods of brio,
        only BRIO and its variants have factors.

        Parameters
        ----------
        X : scans
            As for :meth:`fit`.

        Returns
        -------
        ndarray of float64, shape [n, J]

        Raises
        ------
        BrioError
            If the method has no factors, if the scans and the fitted model have different ROIs, or if a loaded model is
            adapted to a hospital or averages several seeds.
        """
        connectomes, ensemble = self._connectomes(X), self._ensemble
        if len(ensemble.members) > 1:
            n = len(ensemble.members)
            remedy = "use 'brio predict' to get the contributions for each seed"
            raise BrioError(f"the model averages {n} seeds, each with its own factors; {remedy}")
        if self._model is not None and self._model.adaptation is not None:
            raise BrioError("the model is adapted to a hospital; load the original model to get contributions")
        inputs = ensemble.gather_inputs(connectomes, ensemble.members[0])
        scans = inputs.take(torch.arange(len(connectomes), device=connectomes.device))
        with resolve_device(self.device).network_precision():
            return self.method_.compute_contributions(self.fitted_run_, scans)

    def predict_interval(self, X: Any, *, reestimates: int = PREDICTION_REESTIMATES, level: float = 0.95) -> np.ndarray:
        """Compute an interval for the probability of ``classes_[1]`` of each scan.

        The interval is for other minutes of the same scan, as many as were used. It does not cover a scan on another
        day, because connectomes vary more between days.

        Shapes: returns [n, 2].
        """
        return self.predict_table(X, reestimates=reestimates, level=level)[["low", "high"]].to_numpy()

    def predict_table(self, X: Any, **options: Any) -> pd.DataFrame:
        """Return the table of ``brio predict`` for scans, with probabilities, intervals, agreement and flags."""
        model = self.to_model()
        return predict_scans(model, self._make_cohort(X), device=self.device, **options).table

    def explain(
        self, X: Any = None, *, reestimates: int = EXPLAINED_REESTIMATES, sites: bool = False
    ) -> ModelExplanation:
        """Explain the model as ``brio explain`` does."""
        model = self.to_model()
        own = self._training_scans if sites else None
        cohort = own if X is None else self._make_cohort(X)
        progress = print_progress if self.verbose else silent
        return explain_model(model, cohort, reestimates=reestimates, sites=sites, device=self.device, progress=progress)

    def to_model(self) -> Model:
        """Return the fitted model for use at new hospitals.

        The first call after :meth:`fit` computes the ranges of the source scans, by which new scans are flagged, and
        the factor by which prediction intervals are widened.
        """
        check_is_fitted(self)
        if self._model is None:
            if self._training_scans is None:
                raise BrioError(
                    "a pickled copy lacks the scans it was fitted to; call save() before pickling, or fit again"
                )
            cohort, compute = self._training_scans, resolve_device(self.device)
            if holds_fc(cohort.participants):
                raise BrioError("save, explain and intervals need frames, which connectomes lack; fit to time series")
            with compute.network_precision():
                connectomes = Connectomes(cohort, compute.torch_device)
                self._model = complete_model(self.method_, self._members, connectomes, cohort)
        return self._model

    def save(self, path: str | Path, *, holds_scans: bool = False) -> None:
        """Write the fitted model to a new folder, which ``brio predict`` and :meth:`load` can read."""
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
        model = read_model(path)
        fixed = find_method(model.method.name).fixed
        settings = {k: v for k, v in asdict(model.method.settings).items() if k not in fixed}
        own = EstimatorRecord({"method": model.method.name, "settings": settings})
        if model.estimator:
            own = EstimatorRecord.read(model.estimator, Path(path) / MODEL)
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
        """Scans to be scored, with the ROIs of the model; without sites and labels where they are no cohort."""
        check_is_fitted(self)
        if not isinstance(X, Cohort):
            scans = CONVERT[self.kind](X)
            lengths = np.array([len(scan) for scan in scans], dtype=np.int64)
            X = Cohort(
                name="scans to predict",
                frames=np.concatenate(scans),
                starts=locate_scans(lengths),
                n_frames=lengths,
                participants=_describe_rows(len(scans), self.kind),
                atlas=Atlas.unnamed(scans[0].shape[1]),
            )
        check_atlas(self._atlas, X)
        return X

    def _connectomes(self, X: Any) -> Connectomes:
        """Full-scan FC of scans to be scored."""
        return Connectomes(self._make_cohort(X), resolve_device(self.device).torch_device)

    @property
    def _ensemble(self) -> Ensemble:
        return Ensemble(self.method_, self._members) if self._model is None else self._model


@dataclass(frozen=True)
class EstimatorRecord:
    """The description of an estimator in ``model.json``: its parameters, and the labels in sorted order."""

    params: dict[str, Any]
    classes: tuple[bool | int | float | str, bool | int | float | str] = (0, 1)
    dtype: Annotated[str, ARRAY_TYPE] = "int64"

    def __post_init__(self) -> None:
        try:
            classes = np.array(self.classes, dtype=self.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise BrioError(f"classes do not have the type {self.dtype} ({error})") from None
        if classes[0] == classes[1]:
            raise BrioError("both classes have the same label")

    @classmethod
    def read(cls, document: dict[str, Any], path: Path) -> EstimatorRecord:
        """Read the description of the estimator from a model folder."""
        record = from_json(cls, document, path, GET_AGAIN)
        # JSON may store a whole number as a float; a seed that was drawn is stored as None
        hints = {k: float | None if v == int | None else v for k, v in get_type_hints(BrioClassifier.__init__).items()}
        hints |= {"settings": dict[str, Setting] | None, "random_state": int | None, "verbose": bool | int}
        kind = make_dataclass(
            "EstimatorParams", [(own.name, hints[own.name], None) for own in fields(BrioClassifier) if own.init]
        )
        check_fields(kind, record.params, path, GET_AGAIN, "params")
        return record
