"""What figures share: series that are told apart, files that are written whole and come out the same."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from study_benches import tree

from brio.drawing import STYLES, panels, save, style
from brio.studies.summaries import bars, draw_arms, draw_lines


def drawn():
    figure, (left, right) = panels(2, 5, 3, sharey=True)
    left.plot([1, 2, 3], [3, 1, 2], **style(0))
    right.set_xlabel("x")
    return figure


def test_no_two_of_the_first_thirty_series_look_alike():
    looks = [tuple(style(k).values()) for k in range(30)]
    assert len(set(looks)) == 30
    assert [style(k)["color"] for k in range(6)] == [colour for colour, _ in STYLES]
    assert len({marker for _, marker in STYLES}) == 6, "told apart in print"


def test_panels_have_no_frame_above_and_to_the_right():
    figure, axes = panels(3, 9, 2)
    assert len(axes) == len(figure.axes) == 3
    assert figure.get_size_inches().tolist() == [9, 2]
    for axis in axes:
        shown = {side for side in ("top", "right", "bottom", "left") if axis.spines[side].get_visible()}
        assert shown == {"bottom", "left"}


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_the_same_figure_gives_the_same_bytes(ending, tmp_path):
    for name in ("one", "two"):
        assert save(drawn(), tmp_path / f"{name}.{ending}") == tmp_path / f"{name}.{ending}"
    found = tree(tmp_path)
    assert set(found) == {f"one.{ending}", f"two.{ending}"}
    assert found[f"one.{ending}"] == found[f"two.{ending}"]


def test_a_figure_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = save(drawn(), tmp_path / "figure.svg")
    before = path.read_bytes()
    figure = drawn()
    monkeypatch.setattr(type(figure), "savefig", lambda self, path, **words: path.write_text("half") and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save(figure, path)
    assert path.read_bytes() == before
    assert ElementTree.fromstring(before).tag.endswith("svg")


def test_bars_are_never_negative_and_gaps_stay_gaps():
    mean = np.array([50.0, 60.0, np.nan])
    length = bars(mean, [50.0 + 1e-13, 55.0, np.nan], [50.0 - 1e-13, 70.0, np.nan])
    np.testing.assert_array_equal(length, [[0.0, 5.0, np.nan], [0.0, 10.0, np.nan]])


def test_arms_are_drawn_from_the_largest_down(found):
    summary = found("comparison").summary
    figure = draw_arms(summary, "brio", {"brio": "BRIO"})
    left, right = figure.axes
    names = [label.get_text() for label in left.get_yticklabels()]
    assert names == ["BRIO" if a == "brio" else a for a in summary.sort_values("AUC")["arm"]]
    told = [t.get_text() for t in right.texts]
    assert len(told) == 3, "two differences and what they are"
    for name in ("ridge", "gcn"):
        row = summary.set_index("arm").loc[name]
        assert f"{row['to brio']:+.1f}, p = {row['p']:.2g}" in told


def test_lines_go_through_the_means(found):
    table = found("sensitivity").summary.query("setting == 'J'")
    _, (axis,) = panels(1)
    draw_lines(axis, table["value"], table, 0)
    line = axis.lines[0]
    np.testing.assert_array_equal(line.get_xdata(), table["value"])
    np.testing.assert_array_equal(line.get_ydata(), table["AUC"])
    (segments,) = [c.get_segments() for c in axis.collections]
    np.testing.assert_allclose([s[:, 1] for s in segments], table[["low", "high"]])
