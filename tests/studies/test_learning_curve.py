"""Learning curves: they rise where there is something to learn, and every point is an ordinary fit on fewer scans."""

import numpy as np
import pandas as pd
import pytest

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.jobs import JobSpec
from brio.methods import make_method
from brio.protocol import auc, leave_one_site_out
from brio.studies import StudyContext, refits, run_study
from brio.studies.refits import keep_participants, keep_sites
from brio.training import Run

NAMES = {"sites": "source_sites", "participants": "source_participants"}


@pytest.fixture(scope="module")
def cohort():
    quiet = {"unstable": 0.0, "spurious": 0.0, "dead_share": 0.0}
    return simulate(Simulation(n_sites=9, per_class=10, n_rois=16, frames=60, stable=0.3, **quiet))


@pytest.fixture(scope="module")
def place(cohort, tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setattr(refits, "SITE_COUNTS", (2, 4, 12))
    patch.setattr(refits, "SHARES", (0.2, 0.5))
    patch.setattr(refits, "DRAWS", 2)
    settings = {"protocol.validation_sites": 0, "penalties": 3}
    context = StudyContext(
        JobSpec(cohort, seeds=1, settings=settings, device="cpu"), tmp_path_factory.mktemp("learning")
    )
    yield run_study("learning-curve", context)
    patch.undo()


@pytest.fixture(scope="module")
def rows(place):
    table = pd.read_csv(place / "table.csv")
    return table.assign(size=table["size"].replace("all", "inf").astype(float))


@pytest.mark.parametrize("axis", ["sites", "participants"])
def test_curves_rise_where_something_is_planted(rows, axis):
    means = rows[rows["axis"] == axis].groupby("size")["auc"].mean()
    assert means.is_monotonic_increasing
    assert means.loc[np.inf] - means.iloc[0] > 0.05


def test_sizes_are_what_they_say(rows, cohort):
    sites = rows[rows["axis"] == "sites"]
    assert sorted(sites["size"].unique()) == [2, 4, np.inf], "twelve sites are more than there are"
    finite = sites[np.isfinite(sites["size"])]
    assert (finite["source_sites"] == finite["size"]).all()
    assert (rows[np.isinf(rows["size"])]["source_sites"] == 8).all()
    people = rows[rows["axis"] == "participants"]
    assert (people["source_sites"] == 8).all()
    share = people["source_participants"] / people.groupby(["fold", "seed"])["source_participants"].transform("max")
    assert (share[np.isfinite(people["size"])] - people["size"]).abs().max() < 0.06


def test_every_point_is_an_ordinary_fit_on_fewer_source_scans(rows, cohort):
    method, fold = (
        make_method("ridge", {"choose_by": "source-sites", "penalties": 3}),
        leave_one_site_out(cohort, 0, 0)[4],
    )
    for axis, size, smaller in (
        ("sites", 4, keep_sites(fold, cohort, 4, 0, 1)),
        ("participants", 0.5, keep_participants(fold, cohort, 0.5, 0, 1)),
    ):
        (fitted,) = method.fit(Connectomes(cohort), [Run(smaller, 0)])
        place = {"axis": axis, "size": size, "fold": fold.name, "seed": 0, "draw": 1}
        found = rows[(rows[list(place)] == pd.Series(place)).all(axis=1)]
        assert found["auc"].item() == pytest.approx(auc(cohort.labels[fold.test], fitted.test_logit), abs=1e-6)


def test_the_last_point_is_the_ordinary_run(rows, place):
    arm = place.parent.parent / "arms" / "loso" / "ridge,choose_by=source-sites" / "results.csv"
    ordinary = pd.read_csv(arm).set_index(["fold", "seed"])["auc"].sort_index()
    for axis in NAMES:
        last = rows[np.isinf(rows["size"]) & (rows["axis"] == axis)].set_index(["fold", "seed"])["auc"].sort_index()
        assert last.to_numpy() == pytest.approx(ordinary.to_numpy(), abs=1e-6)


def test_subsets_are_nested_balanced_and_leave_the_test_site_whole(cohort):
    fold = leave_one_site_out(cohort, 0, 2)[0]
    few, more = (keep_sites(fold, cohort, count, 0, 3) for count in (2, 5))
    assert set(few.source) < set(more.source) < set(fold.source)
    assert len(np.unique(cohort.sites[few.source])) == 2
    for site in np.unique(cohort.sites[few.source]):
        assert set(np.flatnonzero(cohort.sites == site)) <= set(few.source)
    tenth, half = (keep_participants(fold, cohort, share, 0, 3) for share in (0.01, 0.5))
    assert set(tenth.source) < set(half.source) < set(fold.source)
    cells = pd.DataFrame({"site": cohort.sites[tenth.source], "label": cohort.labels[tenth.source]}).value_counts()
    assert (cells == 1).all()
    assert len(cells) == 2 * len(np.unique(cohort.sites[fold.source]))
    for subset in (few, more, tenth, half):
        np.testing.assert_array_equal(subset.test, fold.test)
        np.testing.assert_array_equal(subset.validation, fold.validation)
    assert set(keep_sites(fold, cohort, 2, 0, 4).source) != set(few.source), "another draw"
    assert set(keep_sites(fold, cohort, 2, 1, 3).source) != set(few.source), "another seed"
