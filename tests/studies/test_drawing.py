"""What figures share: series that are told apart, files that are written whole and come out the same."""

import numpy as np
import pandas as pd
import pytest
from study_contexts import shorter, tree

from brio.drawing import STYLES, make_panels, save_figure, series_style
from brio.formatting import state_p
from brio.studies import factors
from brio.studies.context import display_name
from brio.studies.study import find_study
from brio.studies.summaries import compute_error_bars, draw_arms, label_log_ticks


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


def places(axis) -> dict[float, list]:
    """What is drawn at each height: the mean and the ends of its bar."""
    means = [line for line in axis.lines if line.get_marker() in {m for _, m in STYLES}]
    ends = [c.get_segments()[0] for c in axis.collections]
    return {float(m.get_ydata()[0]): [float(m.get_xdata()[0]), *s[:, 0]] for m, s in zip(means, ends, strict=True)}


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
