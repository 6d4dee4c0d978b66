"""Strange scans among real ones: each kind is flagged, ordinary scans of a left-out site hardly ever."""

from dataclasses import replace

import numpy as np
import pytest

from brio.cohort import Atlas, audit
from brio.cohort.cohort import locate_scans
from brio.cohort.readers import import_cohort
from brio.connectome import Connectomes
from brio.jobs import JobSpec
from brio.models import fit_model
from brio.models.ranges import check_ranges

pytestmark = pytest.mark.soak
SITE = "CALTECH"


def with_scans(cohort, scans, **changes):
    lengths = np.array([len(scan) for scan in scans])
    table = cohort.participants.assign(n_frames=lengths)
    frames = np.concatenate(scans).astype(np.float32)
    return replace(
        cohort, frames=frames, starts=locate_scans(lengths), n_frames=lengths, participants=table, path=None, **changes
    )


def test_strange_scans_of_a_left_out_site(abide_folder, tmp_path):
    aal, cc = (import_cohort("packed", abide_folder, tmp_path / name, atlas=name) for name in ("aal116", "cc200"))
    keep = audit(aal, companions=[cc]).keep
    aal, cc = aal.select(keep), cc.select(keep)
    others = aal.select(aal.sites != SITE)
    model = fit_model(JobSpec(others, ["ridge"], exclude=False, device="cpu"))
    here, there = aal.select(aal.sites == SITE), cc.select(cc.sites == SITE)
    scans = [np.array(here.scan(i)) for i in range(len(here))]
    rng, unnamed = np.random.default_rng(0), Atlas.unnamed(116)
    order = rng.permutation(116)
    wide = [np.array(there.scan(i)) for i in range(len(there))]
    strange = {
        "regions in another order": with_scans(here, [scan[:, order] for scan in scans], atlas=unnamed),
        "another atlas of the same size": with_scans(here, [scan[:, :116] for scan in wide], atlas=unnamed),
        "half the length": with_scans(here, [scan[: len(scan) // 2] for scan in scans]),
        "another repetition time": replace(here, participants=here.participants.assign(tr=0.8)),
        "noise": with_scans(here, [rng.normal(size=scan.shape) for scan in scans]),
    }
    for name, cohort in strange.items():
        found = check_ranges(model.ranges, model.mean, Connectomes(cohort))
        assert (found["in_range"] == "no").all(), name
    found = check_ranges(model.ranges, model.mean, Connectomes(here))
    assert (found["in_range"] == "no").mean() < 0.05
