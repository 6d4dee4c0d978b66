"""What figures share: series that are told apart, files that are written whole and come out the same."""

import numpy as np
import pandas as pd
import pytest
from study_contexts import shorter, tree

from brio.drawing import STYLES, compute_error_bars, label_log_ticks, make_panels, save_figure, series_style
from brio.formatting import state_p
from brio.studies import calibration, factors, participants, refits
from brio.studies.context import display_name
from brio.studies.study import find_study
from brio.studies.summaries import draw_arms


def drawn():
    figure, (left, right) = make_panels(2, 5, 3, sharey=True)
    left.plot([1, 2, 3], [3, 1, 2], **series_style(0))
    right.set_xlabel("x")
    return figure


def test_no_two_of_the_first_thirty_series_look_alike():
    looks = [tuple(series_style(k).values()) for k in range(30)]
    assert len(set(looks)) == 30
    assert [series_style(k)["color"] for k in range(7)] == [colour for colour, _ in STYLES]
    assert len({marker for _, marker in STYLES}) == 7, "told apart in print"


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_the_same_figure_gives_the_same_bytes(ending, tmp_path):
    for name in ("one", "two"):
        assert save_figure(drawn(), tmp_path / f"{name}.{ending}") == tmp_path / f"{name}.{ending}"
    found = tree(tmp_path)
    assert set(found) == {f"one.{ending}", f"two.{ending}"}
    assert found[f"one.{ending}"] == found[f"two.{ending}"]


def test_bars_are_never_negative_and_gaps_stay_gaps():
    mean = np.array([50.0, 60.0, np.nan])
    length = compute_error_bars(mean, [50.0 + 1e-13, 55.0, np.nan], [50.0 - 1e-13, 70.0, np.nan])
    np.testing.assert_array_equal(length, [[0.0, 5.0, np.nan], [0.0, 10.0, np.nan]])


MARKERS = {marker for _, marker in STYLES}


def read_series(axis) -> list[np.ndarray]:
    """Points of every series that has markers, a row each: x and y."""
    lines = (line for line in axis.lines if line.get_marker() in MARKERS and len(line.get_xdata()))
    return [np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float) for line in lines]


def read_bars(axis) -> list[np.ndarray]:
    """Ends of the error bars, a segment each."""
    return [segment for part in axis.collections if hasattr(part, "get_segments") for segment in part.get_segments()]


def places(axis) -> dict[float, list]:
    """What is drawn at each height: the mean and the ends of its bar."""
    means = np.concatenate(read_series(axis))
    return {float(y): [float(x), *bar[:, 0]] for (x, y), bar in zip(means, read_bars(axis), strict=True)}


def test_arms_are_drawn_in_the_order_of_the_summary_with_their_differences(found):
    summary = found("ablation").summary
    figure = draw_arms(summary, "brio")
    left, middle, right = figure.axes
    low, high = left.get_ylim()
    assert low > high, "the first is at the top"
    assert [label.get_text() for label in left.get_yticklabels()] == [display_name(a) for a in summary["arm"]]
    assert left.get_yticks().tolist() == list(range(len(summary)))
    for axis, mean, sd in ((left, "AUC", "SD"), (middle, "ACC", "ACC SD")):
        drawn = places(axis)
        for y, row in summary.iterrows():
            assert drawn[y] == pytest.approx([row[mean], row[mean] - row[sd], row[mean] + row[sd]])
    drawn, told = places(right), {t.xy[1]: t.get_text() for t in right.texts}
    others = summary[summary["arm"] != "brio"]
    assert set(drawn) == set(told) == set(others.index)
    for y, row in others.iterrows():
        assert drawn[y] == pytest.approx(row[["minus brio", "difference low", "difference high"]].tolist())
        assert told[y] == state_p(row["p"])
    assert right.get_xlabel().startswith("AUC minus BRIO, points")
    assert len(draw_arms(summary[summary["arm"] == "brio"].reset_index(drop=True), "brio").axes) == 2


def test_the_ablation_tells_what_is_ours(context):
    with shorter():
        figure = find_study("ablation").find(context).draw()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        *("BRIO", "w/o RS", "w/o SM", "w/o QG (ours)", "backbone (ours)"),
        *("shuffled sites (ours)", "backbone, shuffled sites (ours)"),
    ]


# ---------------------------------------------------------------- propositions


@pytest.fixture
def theorem():
    """Both propositions with as many points as sixty runs have."""
    rng = np.random.default_rng(0)
    bound = 10 ** -rng.exponential(0.6, size=4000)
    change = bound * 10 ** -(0.3 + rng.exponential(0.6, size=4000))
    first = pd.DataFrame({"bound": bound, "change": change, "sign_condition": rng.random(4000) < 0.3})
    first.loc[0, "change"] = 0.0  # has no place on a logarithmic axis
    return first, pd.DataFrame({"gain": rng.exponential(0.002, size=16000)})


def test_the_axes_of_the_bound_begin_at_the_smallest_point(theorem):
    first, second = theorem
    left, right = factors.draw_propositions(first, second).axes
    seen = first[first["change"] > 0]
    for (low, high), values in ((left.get_xlim(), seen["bound"]), (left.get_ylim(), seen["change"])):
        assert values.min() / 2 < low < values.min()
        assert high > values.max()
    (line,) = [one for one in left.lines if len(one.get_xdata()) == 2]
    np.testing.assert_array_equal(line.get_xdata(), line.get_ydata())
    assert [text.get_text() for text in left.texts] == ["change = bound"]
    assert right.get_yscale() == "log", "a tail of single pairs beside thousands"


@pytest.mark.parametrize(
    ("limits", "labels"),
    [
        ((0.21, 0.29), {"0.22", "0.24", "0.26", "0.28"}),
        ((0.08, 0.9), {"0.1", "0.2", "0.5"}),
        ((0.002, 3.0), {"0.01", "0.1", "1"}),
    ],
)
def test_logarithmic_axes_have_plain_numbers(limits, labels):
    figure, (axis,) = make_panels(1)
    axis.set_yscale("log")
    axis.set_ylim(limits)
    label_log_ticks(axis.yaxis)
    figure.draw_without_rendering()
    ticks = [*axis.yaxis.get_major_ticks(), *axis.yaxis.get_minor_ticks()]
    shown = {t.label1.get_text() for t in ticks if limits[0] <= t.get_loc() <= limits[1]}
    assert shown - {""} == labels


# ---------------------------------------------------------------- studies of our own


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
