"""Figures of our own studies: what is drawn is what was computed, at its own place."""

import numpy as np
import pandas as pd
import pytest

from brio.drawing import STYLES
from brio.studies import calibration, participants, refits

MARKERS = {marker for _, marker in STYLES}


def read_series(axis) -> list[np.ndarray]:
    """Points of every series that has markers, a row each: x and y."""
    lines = (line for line in axis.lines if line.get_marker() in MARKERS and len(line.get_xdata()))
    return [np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float) for line in lines]


def read_bars(axis) -> list[np.ndarray]:
    """Ends of the error bars, a segment each."""
    return [segment for part in axis.collections if hasattr(part, "get_segments") for segment in part.get_segments()]


@pytest.fixture
def scored():
    """Two variables and two methods, as the study summarises them."""
    rows = []
    for shift, arm in enumerate(["ridge", "log-ridge"]):
        for variable, groups in (("sex", ["female", "male"]), ("age, years", ["lowest third", "highest third"])):
            for g, group in enumerate(groups):
                auc = 70.0 + 5 * g + shift
                rows.append([arm, variable, group, "" if variable == "sex" else "6–12", auc, np.nan, np.nan])
            rows.append([arm, variable, f"{groups[1]} minus {groups[0]}", "", 5.0, 0.2, 0.4])
    table = pd.DataFrame(rows, columns=["arm", "variable", "subgroup", "range", "AUC", "p", "p Holm"])
    ends = {"low": -3.0, "high": 4.0, "random low": -2.0, "random high": 2.0}
    return table.assign(**{name: table["AUC"] + by for name, by in ends.items()})


def test_a_difference_stands_beside_the_middle_of_its_subgroups(scored):
    figure = participants._draw_subgroups(scored)
    left, right = figure.axes
    assert left.get_ylim() == right.get_ylim(), "rows of both panels are at the same height"
    drawn = np.concatenate(read_series(left))
    of_groups = scored[scored["p"].isna()]
    assert drawn[:, 0].tolist() == of_groups["AUC"].tolist()
    heights, differences = drawn[:, 1].reshape(2, 2, 2), np.concatenate(read_series(right))
    assert differences[:, 1].tolist() == pytest.approx(heights.mean(axis=2).ravel().tolist())
    assert np.ptp(np.sort(heights.ravel())) > 0
    assert np.diff(np.sort(heights.ravel())).min() >= 0.45, "no marker hides another"
    for segment, auc in zip(read_bars(left), of_groups["AUC"], strict=True):
        assert segment[:, 0].tolist() == pytest.approx([auc - 3, auc + 4])
    labels = [label.get_text() for label in left.get_yticklabels()]
    assert labels == ["sex", "age, years", "female", "male", "lowest third, 6–12", "highest third, 6–12"]
    assert [text.get_text() for text in right.texts] == ["p = 0.40"] * 4


def test_both_means_of_a_learning_curve_stand_side_by_side_at_every_size():
    parts = []
    for arm in ("ridge,choose_by=source-sites", "svm"):
        for label in ("source sites", "source participants"):
            sizes = np.array([3.0, 5.0, 19.0]) * (1 if label == "source sites" else 50)
            parts.append(pd.DataFrame({"arm": arm, "against": label, label: sizes, "AUC": [65.0, 68.0, 74.0]}))
    table = pd.concat(parts, ignore_index=True)
    table = table.assign(low=table["AUC"] - 4, high=table["AUC"] + 4, **{"pair-weighted AUC": table["AUC"] + 2})
    for axis, sizes in zip(refits._draw_curves(table).axes, ([3, 5, 19], [150, 250, 950]), strict=True):
        assert axis.get_xticks().tolist() == sizes
        series = read_series(axis)
        assert len(series) == 4
        for points in series:
            assert points[0, 1] in (65, 67)
            np.testing.assert_allclose(points[:, 0], sizes, atol=0.03 * sizes[-1])
        assert len({round(float(points[0, 0]), 9) for points in series}) == 4
        np.testing.assert_allclose([s[:, 1] for s in read_bars(axis)][:3], [[61, 69], [64, 72], [70, 78]])


def test_the_gain_of_a_decision_curve_has_its_interval():
    rng = np.random.default_rng(0)
    sites = [
        pd.DataFrame({"fold": fold, "seed": 0, "threshold": calibration.THRESHOLDS}) for fold in ("one", "two", "three")
    ]
    rows = pd.concat(sites, ignore_index=True)
    rows["treat_all"], rows["net_benefit"] = 0.5 - rows["threshold"], rng.normal(0.2, 0.1, len(rows))
    curve = calibration.average_net_benefit(rows)
    left, right = calibration.draw_curves({"ridge": curve, "svm": curve}).axes
    for points in read_series(left):
        np.testing.assert_allclose(points, np.column_stack([curve.index, curve["net_benefit"]]))
    bars = read_bars(right)
    assert len(bars) == 2 * len(curve)
    for segment, (_, row) in zip(bars, curve.iterrows(), strict=False):
        assert segment[:, 1].tolist() == pytest.approx([row["gain low"], row["gain high"]])
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["treat all", "treat none", "ridge", "svm"]
