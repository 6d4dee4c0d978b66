"""ABIDE from the internet: nilearn downloads, the reader of its layout imports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import BrioError, nearest
from ..cohort import Cohort
from .assembly import canonical, refuse_existing
from .pcp import read_pcp

__all__ = ["fetch_abide"]

DERIVATIVES = {"aal116": "rois_aal", "cc200": "rois_cc200"}


def fetch_abide(
    atlas: str,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    n_subjects: int | None = None,
    name: str | None = None,
    fetcher: Callable[..., Any] | None = None,
) -> Cohort:
    """Download ABIDE's ROI series (C-PAC, band-pass filtered, global signal regressed) and import them.

    Every subject is taken, whatever the raters of the release said; excluding is left to the audit.

    Parameters
    ----------
    atlas : str
        ``aal116`` or ``cc200``.
    out : str or Path
        The cohort folder to write.
    data_dir : str or Path, optional
        Where the downloads are kept; by default nilearn's own folder. Files already there are not fetched again.
    n_subjects : int, optional
        Only the first so many.
    name : str, optional
        Name of the cohort.
    fetcher : callable, optional
        Stands in for ``nilearn.datasets.fetch_abide_pcp``.
    """
    known = canonical(atlas).lower()
    if known not in DERIVATIVES:
        raise BrioError(f"ABIDE cannot be fetched for atlas '{atlas}', {nearest(known, DERIVATIVES)}")
    refuse_existing(out)
    if fetcher is None or data_dir is None:
        from nilearn import datasets

        fetcher = fetcher or datasets.fetch_abide_pcp
        folders = datasets.get_data_dirs()
        data_dir = data_dir or next((d for d in folders if (Path(d) / "ABIDE_pcp").is_dir()), folders[0])
    try:
        fetcher(
            data_dir=str(data_dir),
            n_subjects=n_subjects,
            pipeline="cpac",
            band_pass_filtering=True,
            global_signal_regression=True,
            derivatives=[DERIVATIVES[known]],
            quality_checked=False,
        )
    except Exception as error:  # the network fails in many ways
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise BrioError(
            f"the download of ABIDE failed ({said}); run again, files already in {data_dir} are kept"
        ) from error
    folder = Path(data_dir) / "ABIDE_pcp"
    return read_pcp(
        folder / "cpac" / "filt_global",
        out,
        atlas=DERIVATIVES[known].removeprefix("rois_"),
        participants=folder / "Phenotypic_V1_0b_preprocessed1.csv",
        name=name,
    )
