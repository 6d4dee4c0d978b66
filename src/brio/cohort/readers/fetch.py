"""Download ABIDE with nilearn and import it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import BrioError, nearest
from ...storage import refuse_existing
from ..cohort import Cohort
from .assembly import canonicalise_atlas_name
from .digests import compare_digests
from .options import ImportOptions
from .pcp import read_pcp

PHENOTYPES = "Phenotypic_V1_0b_preprocessed1.csv"
DERIVATIVES = {"aal116": "rois_aal", "cc200": "rois_cc200"}
"""Name of each atlas in the release."""


def fetch_abide(
    atlas: str,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    n_subjects: int | None = None,
    name: str | None = None,
    digests: str | Path | None = None,
    fetcher: Callable[..., Any] | None = None,
) -> Cohort:
    """Download the ROI series of ABIDE I and import them.

    The series are those of the C-PAC pipeline, band-pass filtered and with global signal regression. All participants
    are imported, whatever the quality ratings of the release; exclusions are left to the audit.

    The release publishes no digests, so a first download can only be trusted. With ``digests`` its files are recorded,
    and every later download is compared with the record before it is imported.
    """
    atlas_name = canonicalise_atlas_name(atlas).lower()
    if atlas_name not in DERIVATIVES:
        raise BrioError(f"ABIDE is not offered for atlas '{atlas}', {nearest(atlas_name, DERIVATIVES)}")
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
            derivatives=[DERIVATIVES[atlas_name]],
            quality_checked=False,
        )
    except Exception as error:  # the network fails in many ways
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise BrioError(
            f"the download of ABIDE failed ({message}); run again, files already in {data_dir} are kept"
        ) from error
    folder = Path(data_dir) / "ABIDE_pcp"
    if digests is not None:
        series = (folder / "cpac" / "filt_global").glob(f"*_{DERIVATIVES[atlas_name]}.1D")
        compare_digests(folder, sorted([folder / PHENOTYPES, *series]), Path(digests))
    return read_pcp(
        folder / "cpac" / "filt_global",
        out,
        ImportOptions(atlas=DERIVATIVES[atlas_name].removeprefix("rois_"), participants=folder / PHENOTYPES, name=name),
    )
