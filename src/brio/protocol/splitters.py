"""The protocols as scikit-learn splitters, for ``cross_validate``, ``GridSearchCV`` and the like."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length

from ..cohort.scans import index_participants
from ..errors import BrioError
from ..formatting import format_count
from .folds import assign_stratified_folds


class _SiteSplitter(BaseCrossValidator):
    """A splitter whose ``groups`` are the sites of the scans; it needs only the length of ``X``."""

    __metadata_request__split = {"groups": True}  # noqa: RUF012 (read by scikit-learn's metadata routing)

    def _sites(self, groups: Any) -> np.ndarray:
        if groups is None:
            how = "pass groups=sites to cross_validate or a search (in params if metadata routing is enabled)"
            raise BrioError(f"{type(self).__name__} needs the site of every scan; {how}")
        sites = np.asarray(groups)
        if sites.ndim != 1:
            raise BrioError(f"{type(self).__name__}: groups must list one site per scan, but has shape {sites.shape}")
        missing = np.flatnonzero(pd.isna(sites))
        if len(missing):
            raise BrioError(f"{type(self).__name__}: groups[{missing[0]}] has no site; give the site of every scan")
        return sites.astype(str) if sites.dtype == object else sites


class LeaveOneSiteOut(_SiteSplitter):
    """Leave one site out: each site is the test set once, in sorted order, and all other sites are the training set.

    Sites with only one class are test sites, too. Their AUC is undefined: a warning names these sites, and
    scikit-learn's scorer reports NaN.

    :class:`~brio.BrioClassifier` draws validation sites, if it needs any, from the training sites.

    Examples
    --------
    >>> import numpy as np
    >>> scans = [np.zeros((50 + i, 3)) for i in range(6)]
    >>> sites, y = ["NYU", "NYU", "KKI", "KKI", "UM", "UM"], [0, 1, 0, 1, 0, 1]
    >>> splitter = LeaveOneSiteOut()
    >>> splitter.get_n_splits(groups=sites)
    3
    >>> for train, test in splitter.split(scans, y, groups=sites):
    ...     print(sites[test[0]], train, test)
    KKI [0 1 4 5] [2 3]
    NYU [2 3 4 5] [0 1]
    UM [0 1 2 3] [4 5]
    """

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of sites. ``X`` and ``y`` are ignored."""
        return len(np.unique(self._sites(groups)))

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the positions of the training and the test scans, one pair per fold.

        Parameters
        ----------
        X : sequence of scans
        y : sequence of labels, optional
            Used only to warn about sites with one class.
        groups : sequence of sites
            The site of each scan.
        """
        sites = self._sites(groups)
        check_consistent_length(X, y, sites)
        names = np.unique(sites)
        if len(names) < 2:
            raise BrioError(f"LeaveOneSiteOut needs at least two sites; all scans are from {names[0]}")
        if y is not None:
            labels = np.asarray(y)
            single = [str(s) for s in names if len(np.unique(labels[sites == s])) < 2]
            if single:
                warnings.warn(
                    f"only one class at {', '.join(single)}; the AUC of such a test site is undefined", stacklevel=2
                )
        for site in names:
            yield np.flatnonzero(sites != site), np.flatnonzero(sites == site)


class SiteStratifiedKFold(_SiteSplitter):
    """Split scans into K folds, with every site and class distributed over the folds as evenly as possible.

    Training and test scans come from the same sites, so scores do not apply to other sites.

    Parameters
    ----------
    n_splits : int
        Number of folds.
    random_state : int, RandomState or None
        Determines which scans of each site and class are in which fold.
    participants : sequence of participants, optional
        Participant of each scan. All scans of a participant are in the same fold. By default, each scan counts as
        a participant.

    Examples
    --------
    >>> splitter = SiteStratifiedKFold(n_splits=2, random_state=0)
    >>> splitter
    SiteStratifiedKFold(n_splits=2, random_state=0)
    >>> sites, y = ["A"] * 4 + ["B"] * 4, [0, 0, 1, 1] * 2
    >>> [[sites[i] + str(y[i]) for i in test] for _, test in splitter.split(y, y, groups=sites)]
    [['A0', 'A1', 'B0', 'B1'], ['A0', 'A1', 'B0', 'B1']]
    """

    def __init__(
        self,
        n_splits: int = 10,
        *,
        random_state: int | np.random.RandomState | None = None,
        participants: Any = None,
    ) -> None:
        self.n_splits = n_splits
        self.random_state = random_state
        self.participants = participants

    def __repr__(self) -> str:
        """Show the parameters, with the number of participants instead of the list, which is as long as the scans."""
        shown = "" if self.participants is None else f", participants of {len(self.participants)} scans"
        return f"SiteStratifiedKFold(n_splits={self.n_splits}, random_state={self.random_state!r}{shown})"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds. All arguments are ignored."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the positions of the training and the test scans, one pair per fold.

        Parameters
        ----------
        X : sequence of scans
        y : sequence of labels
        groups : sequence of sites
            The site of each scan.
        """
        sites = self._sites(groups)
        if y is None:
            raise BrioError("SiteStratifiedKFold stratifies by site and class; pass the labels as y")
        check_consistent_length(X, y, sites)
        ids = np.arange(len(sites))
        if self.participants is not None:
            check_consistent_length(sites, self.participants)
            ids = index_participants(self.participants)[1]
        most, what = len(np.unique(ids)), "scans" if self.participants is None else "participants"
        if most < 2:
            raise BrioError(f"SiteStratifiedKFold: {format_count(most, what.removesuffix('s'))}, but two are needed")
        if not isinstance(self.n_splits, numbers.Integral) or not 2 <= self.n_splits <= most:
            problem = f"n_splits={self.n_splits}, but it must be a whole number from 2 to {most}, the number of {what}"
            raise BrioError(f"SiteStratifiedKFold: {problem}")
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        fold = assign_stratified_folds(ids, sites, np.asarray(y), self.n_splits, seed)
        for k in range(self.n_splits):
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)
