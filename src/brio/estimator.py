"""scikit-learn estimator: :class:`BrioClassifier`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .cohort import Cohort
from .connectome import Connectomes
from .device import resolve_device
from .errors import BrioError
from .estimator_input import build_labelled_cohort
from .estimator_model import FittedModelMixin, print_progress
from .jobs.needs import check_memory
from .models import Ensemble, Member
from .models.fit import define_final_model
from .progress import silent

MAIN_SETTINGS = (
    *("J", "K", "M", "T_w", "epochs", "epsilon", "lambda_env"),
    *("learning_rate", "patience", "rho_g", "weight_decay"),
)
"""Settings of a method that are parameters of the estimator, so that a search can vary them."""


class BrioClassifier(ClassifierMixin, FittedModelMixin):
    """Classify patients and controls from their scans, at sites the model was not trained on.

    Parameters
    ----------
    method : str
        Any method that ``brio methods`` lists: ``"brio"``, its ablations, ``"ridge"``, ...
    J, K, M, T_w, epochs, patience : int, optional
        Main settings of the method, see its ``Settings`` (:class:`brio.methods.BrioSettings`); None is the method's own
        default. A setting that the method does not have is an error.
    epsilon, lambda_env, learning_rate, rho_g, weight_decay : float, optional
        Likewise.
    settings : dict, optional
        Any other settings of the method by name, for instance ``{"cell_batch": 8}``.
        ``{"patience": None}`` trains to the last epoch.
    validation_sites : int or "auto"
        Number of sites that choose the epoch of a network, which is then trained again on all sites to that epoch
        (``settings={"refit": False}`` leaves that out). With 0, inner folds choose. ``auto`` is 2 from four sites with
        both classes on, else 0. Closed-form models choose their penalty by inner folds over all sites and read it only
        under ``settings={"choose_by": "validation"}``.
    random_state : int, RandomState or None
        An integer is the seed itself, as those of ``brio fit``; else the seed is drawn. It decides on the validation
        sites, the initial weights, the batches and the re-estimates.
    device : {"auto", "cpu", "cuda", "cuda-tf32"}
    verbose : bool
        Print the progress.

    Attributes
    ----------
    classes_ : ndarray, shape [2]
        The labels in sorted order; margins are positive for the second.
    n_features_in_ : int
        ROIs of a scan. Scans are time series: the number of frames is free and may differ from scan to scan.
    feature_names_in_ : ndarray of str
        Names of the ROIs; only where the model was fitted to a cohort with a named atlas.
    source_sites_, validation_sites_, one_class_sites_ : tuple of str
        Sites that the model was trained on, that chose the checkpoint (trained on too after a refit), and that could
        do neither because they hold one class.
    validation_auc_ : float
        AUC on the validation sites at the chosen checkpoint or penalty; on the inner folds where there are no
        validation sites. It is the best of many, hence optimistic.
    selected_epoch_ : int or None
        Epoch of the checkpoint, counted from 1; None where the method has no epochs.
    block_length_ : float or None
        Block length of the re-estimates in frames; None where nothing was re-estimated.
    method_ : Method
        The method with its settings.
    fitted_run_ : FittedRun
        The fitted run, with its weights.
    intercept_ : float
        Bias of the margin, see :meth:`contributions`; only where the method has factors.
    seed_ : int
        The integer ``random_state``, or the seed drawn from it.

    Notes
    -----
    The fitted model is that of ``brio fit --seeds 1`` on the same scans with the same settings: for
    ``random_state=0`` margins agree. ``brio fit`` excludes scans by its audit first; the estimator learns from every
    scan that it is given (``--keep-all``).

    ``X`` is a list of arrays of shape [T_i, P] (or an array of objects), one array of shape [n, T, P],
    or a :class:`brio.Cohort`. Frames with missing values are dropped; an ROI without signal is allowed.

    A Cohort cannot be split by scikit-learn; give ``[cohort.scan(i) for i in range(len(cohort))]`` to
    ``cross_validate``. Inside it every training set needs ``validation_sites + 2`` sites with both classes; without
    validation sites one is enough to fit and score, but :meth:`save` and :meth:`predict_interval` need two, as
    ``brio fit`` does.

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
        validation_sites: int | str = "auto",
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
        """Learn from scans of several sites; warn of sites with one class, which are not trained on.

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

        Raises
        ------
        BrioError
            If labels, sites or settings are wrong, too few sites hold both classes, or training diverges.
        """
        cohort, classes = build_labelled_cohort(X, y, sites)
        device = resolve_device(self.device)
        seed = self._choose_seed()
        method, runs = define_final_model(self.method, self._gather_settings(), cohort, [seed], self.validation_sites)
        check_memory([method], cohort, device)
        fold = runs[0].fold
        if fold.one_class_sites:
            warnings.warn(f"one class only at {', '.join(fold.one_class_sites)}: not learned from", stacklevel=2)
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
        """Compute the logits of the probabilities that ``brio run`` stores.

        They are the margins; those of linear models are calibrated on inner folds over the source sites first. Their
        order stays, but classes of ``brio run`` go by the margins before calibration.

        Parameters
        ----------
        X : scans
            As for :meth:`fit`.

        Returns
        -------
        ndarray of float64, shape [n]
            Above 0 for ``classes_[1]``.

        Raises
        ------
        BrioError
            If the ROIs of the scans are not those of the fitted model.
        """
        connectomes = self._connectomes(X)
        with resolve_device(self.device).network_precision():
            return self._ensemble.average_members(self._ensemble.collect_margins(connectomes))[0]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Compute the probabilities of both classes, the logistic function of :meth:`decision_function`.

        Parameters
        ----------
        X : scans
            As for :meth:`fit`.

        Returns
        -------
        ndarray of float64, shape [n, 2]
            In the order of ``classes_``.
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
            Values of ``classes_``.
        """
        logit = self.decision_function(X)
        return self.classes_[(logit > 0).astype(np.int64)]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Compute the share of scans whose label is predicted.

        Parameters
        ----------
        X : scans
            As for :meth:`fit`.
        y : sequence of n labels, optional
            May be left out for a Cohort, whose labels 0 and 1 are then ``classes_`` in their order.
        sample_weight : sequence of n numbers, optional

        Returns
        -------
        float
        """
        if y is None and isinstance(X, Cohort):
            check_is_fitted(self)
            y = self.classes_[X.labels]
        if y is None:
            raise BrioError("y=None: give the label of every scan, score(X, y), or a Cohort, which has labels")
        return float(super().score(X, y, sample_weight))

    def contributions(self, X: Any) -> np.ndarray:
        """Compute the contributions of the connectome factors to the margins, Eq. (10).

        ``contributions(X).sum(1) / sqrt(J) + intercept_`` is :meth:`decision_function`. Only methods with
        factors (BRIO and its ablations) have contributions.

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
            If the method has no factors, the ROIs of the scans are not those of the fitted model, or a loaded model
            averages several seeds, whose factors differ, or is adapted to a hospital.
        """
        connectomes, ensemble = self._connectomes(X), self._ensemble
        if len(ensemble.members) > 1:
            raise BrioError(
                f"the model averages {len(ensemble.members)} seeds, and each has factors of its own; fit it with one "
                "seed, or see the contributions under each seed with 'brio predict'"
            )
        if self._model is not None and self._model.adaptation is not None:
            raise BrioError(
                "the model is adapted to a hospital, and contributions add up to its margin before that; load the "
                "model that was adapted"
            )
        inputs = ensemble.gather_inputs(connectomes, ensemble.members[0])
        scans = inputs.take(torch.arange(len(connectomes), device=connectomes.device))
        with resolve_device(self.device).network_precision():
            return self.method_.compute_contributions(self.fitted_run_, scans)

    @property
    def _ensemble(self) -> Ensemble:
        return Ensemble(self.method_, self._members) if self._model is None else self._model

    @property
    def left_out_sites_(self) -> tuple[str, ...]:
        """Deprecated name of ``one_class_sites_``."""
        warnings.warn("left_out_sites_ is now one_class_sites_", DeprecationWarning, stacklevel=2)
        return self.one_class_sites_

    def _choose_seed(self) -> int:
        """Return an integer ``random_state`` itself, as ``brio fit`` counts its seeds, else draw a seed from it."""
        generator = check_random_state(self.random_state)  # refuses what is none
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(generator.randint(np.iinfo(np.int32).max))

    def _gather_settings(self) -> dict[str, Any]:
        if not isinstance(self.settings, Mapping | None):
            raise BrioError(f"settings={self.settings!r}: give a dictionary of the method's settings")
        main = {name: getattr(self, name) for name in MAIN_SETTINGS if getattr(self, name) is not None}
        others = dict(self.settings or {})
        twice = sorted(main.keys() & others.keys())
        if twice:
            raise BrioError(f"'{twice[0]}' is given twice, as a parameter and in settings; keep one")
        return main | others
