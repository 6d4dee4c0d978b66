"""Cells of source scans, their weights, and the batches drawn from them."""

from collections import Counter

import numpy as np
import pytest
from small_cohorts import cohort_of, split

from brio.training import Run
from brio.training.stack import SourceCells


def cells(cohort, run):
    """Members of each site and class of a run, by names."""
    out = {}
    for i in run.fold.source:
        out.setdefault((str(cohort.sites[i]), int(cohort.labels[i])), set()).add(int(i))
    return out


def test_members_are_the_source_scans_of_each_site_and_class(cohort, uneven):
    sources = SourceCells(cohort, uneven)
    assert sources.n_sites.tolist() == [3, 4, 2]
    for r, run in enumerate(uneven):
        expected = cells(cohort, run)
        names = sorted({site for site, _ in expected})
        for e in range(4):
            for c in (0, 1):
                found = sources.members[r, e, c, : sources.size[r, e, c]].tolist()
                assert len(found) == len(set(found))
                assert set(found) == (expected[names[e], c] if e < len(names) else set())


def test_weights_of_cells_pairs_and_members_are_equal_shares(cohort, uneven):
    sources = SourceCells(cohort, uneven)
    scans, cell_average = sources.cell_average()
    for r, (E, run) in enumerate(zip((3, 4, 2), uneven, strict=True)):
        cell = sources.cell_weight[r]
        np.testing.assert_allclose(cell[:E], 1 / (2 * E))
        assert (cell[E:] == 0).all()
        pairs = [(e, f) for e in range(4) for f in range(e + 1, 4)]
        expected = [2 / (E * (E - 1)) if e < E and f < E else 0.0 for e, f in pairs]
        np.testing.assert_allclose(sources.pair_weight[r], expected)
        for e in range(4):
            for c in (0, 1):
                n = sources.size[r, e, c]
                inside = cell_average[r, e, c] > 0
                assert sorted(scans[r, inside]) == sorted(sources.members[r, e, c, :n])
                np.testing.assert_allclose(cell_average[r, e, c, inside], 1 / max(n, 1), rtol=1e-15)
        assert set(scans[r]) == set(run.fold.source)
        assert sorted(scans[r, cell_average[r].any((0, 1))]) == sorted(run.fold.source)


@pytest.mark.parametrize("cell_batch", [1, 2, 3, 7])
def test_a_batch_holds_equally_many_scans_of_every_source_site_and_class(cohort, uneven, cell_batch):
    sources = SourceCells(cohort, uneven)
    for epoch in (1, 2, 5):
        batches, active = sources.batches(epoch, cell_batch)
        for r, run in enumerate(uneven):
            source = cells(cohort, run)
            E = sources.n_sites[r]
            steps = int(active[:, r].sum())
            assert steps == max(1, len(run.fold.source) // (2 * E * cell_batch))
            assert active[:steps, r].all()  # the steps a run takes come first
            for step in range(steps):
                drawn = batches[step, r]
                assert set(drawn.ravel().tolist()) <= set(run.fold.source.tolist())
                for e in range(E):
                    for c in (0, 1):
                        here = {(str(cohort.sites[i]), int(cohort.labels[i])) for i in drawn[e, c]}
                        assert here == {(sorted({s for s, _ in source})[e], c)}
                assert drawn.shape == (4, 2, cell_batch)


def test_within_an_epoch_scans_of_a_cell_are_drawn_evenly(cohort, uneven):
    sources = SourceCells(cohort, uneven)
    batches, active = sources.batches(3, 2)
    for r in range(len(uneven)):
        taken = batches[active[:, r], r]
        for e in range(sources.n_sites[r]):
            for c in (0, 1):
                times = Counter(taken[:, e, c].ravel().tolist())
                members = sources.members[r, e, c, : sources.size[r, e, c]].tolist()
                counts = [times.get(i, 0) for i in members]
                assert max(counts) - min(counts) <= 1


def test_small_cells_go_round_and_large_cells_are_covered_over_epochs(rows):
    few = [row for row in rows if row[2] in {"ant-00", "ant-01", "ant-03"} or row[0] in {"bee", "dog", "fox"}]
    cohort = cohort_of(few)
    run = Run(split(cohort, "abd", "f", "f"), 3)
    sources = SourceCells(cohort, [run])
    assert sources.size[0, 0].tolist() == [1, 2]
    batches, _ = sources.batches(1, 4)
    assert len(set(batches[0, 0, 0, 0].tolist())) == 1
    assert sorted(Counter(batches[0, 0, 0, 1].tolist()).values()) == [2, 2]
    seen = {int(i) for epoch in range(1, 12) for i in sources.batches(epoch, 1)[0].ravel()}
    assert seen == set(run.fold.source.tolist())


@pytest.mark.parametrize("epoch", [1, 4])
def test_batches_do_not_depend_on_the_other_runs_of_the_stack(cohort, uneven, epoch):
    together, active = SourceCells(cohort, uneven).batches(epoch, 2)
    for r, run in enumerate(uneven):
        alone, every = SourceCells(cohort, [run]).batches(epoch, 2)
        E, steps = alone.shape[2], len(alone)
        assert every.all()
        assert np.array_equal(together[:steps, r, :E], alone[:, 0])
        assert active[:, r].sum() == steps
    kept = SourceCells(cohort, uneven).select(np.array([True, False, True]))
    fewer, _ = kept.batches(epoch, 2)
    assert np.array_equal(fewer[:, 1, :2], together[: len(fewer), 2, :2])


def test_batches_do_not_depend_on_participants_outside_the_source(rows, cohort, uneven):
    run = uneven[0]
    names = lambda cohort, run: cohort.ids[SourceCells(cohort, [run]).batches(2, 2)[0]]  # noqa: E731
    before = names(cohort, run)
    without = cohort_of([row for row in rows if row[0] in ("ant", "bee", "cat", "dog")])
    fold = split(without, "abc", "d", "d")
    assert np.array_equal(names(without, Run(fold, run.seed)), before)
