"""Output of XCP-D, giga_connectome, HALFpipe and C-PAC."""

import numpy as np
import pytest
from file_layouts import check_scans
from pipeline_folders import MEAN_FD, PIPELINES, TR, write_pipeline

from brio.cohort.readers import import_cohort, read_scans_to_predict

CLASSES = {"label_column": "dx", "patient": "MDD", "control": "HC"}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_output_of_a_pipeline_is_imported_with_tr_and_motion(name, tmp_path):
    frames = write_pipeline(name, tmp_path / "study")
    _, atlas, has_motion = PIPELINES[name]
    cohort = import_cohort("bids", tmp_path / "study", tmp_path / "out", atlas=atlas, **CLASSES)
    check_scans(cohort, frames)
    np.testing.assert_allclose(cohort.participants["tr"], TR, rtol=1e-6)
    if has_motion:
        np.testing.assert_allclose(cohort.participants["mean_fd"], MEAN_FD)
    assert (cohort.labels.sum(), cohort.provenance["skipped"]) == (3, [])
    scans = read_scans_to_predict(tmp_path / "study", tmp_path / "scans", atlas=atlas, **CLASSES)
    assert (scans.provenance["kind"], scans.fingerprint) == ("bids", cohort.fingerprint)
