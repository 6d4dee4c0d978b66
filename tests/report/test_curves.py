"""Pictures: the files are written, and what the axes hold is what was computed."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from brio.errors import BrioError
from brio.protocol import calibration_error, reliability, roc_band
from brio.report import curves
from brio.report.comparisons import comparisons, paired_scores


def predictions(methods: str = "ab", sites: int = 4, seeds: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = []
    for k, method in enumerate(methods):
        for s in range(seeds):
            for e in range(sites):
                label = np.arange(24) % 2
                logit = (0.4 + k) * label + rng.normal(size=24)
                keys = {"method": method, "fold": f"s{e}", "seed": s, "site": f"s{e}"}
                parts.append(pd.DataFrame(keys | {"label": label, "logit": logit}))
    return pd.concat(parts, ignore_index=True).assign(probability=lambda p: 1 / (1 + np.exp(-p["logit"])))


def results(methods: str = "abc", sites: int = 7) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    run = {"cohort": "small", "protocol": "loso", "n_source": 90, "n_test": 10}
    return pd.DataFrame(
        [
            run | {"method": m, "fold": f"s{e}", "seed": s, "auc": v, "brier": 1 - v}
            for k, m in enumerate(methods)
            for e in range(sites)
            for s in range(2)
            for v in [0.6 + 0.05 * k + 0.02 * rng.normal()]
        ]
    )


def axes(n: int = 1) -> list:
    return list(np.ravel(Figure().subplots(1, n)))


def texts(axis) -> list[str]:
    return [t.get_text() for t in axis.texts]


def draw(kind: str, path, n: int):
    if kind == "roc":
        return curves.draw_roc(predictions("abcdefg"[:n]), path, "title")
    if kind == "reliability":
        return curves.draw_reliability(predictions("abcdefg"[:n]), path, "title")
    return curves.draw_forest(results("abcdefg"[: n + 1]), "a", path, "title")


@pytest.mark.parametrize("kind", ["roc", "reliability", "forest"])
@pytest.mark.parametrize(("suffix", "starts"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_pictures_are_written_whole(kind, suffix, starts, tmp_path):
    path = draw(kind, tmp_path / f"figure{suffix}", 2)
    assert path == tmp_path / f"figure{suffix}"
    assert path.read_bytes().startswith(starts)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("kind", ["roc", "reliability", "forest"])
def test_a_picture_must_have_a_known_format(kind, tmp_path):
    with pytest.raises(BrioError, match="must end in"):
        draw(kind, tmp_path / "figure.jpeg", 1)


@pytest.mark.parametrize("kind", ["roc", "reliability", "forest"])
def test_the_same_numbers_make_the_same_bytes(kind, tmp_path):
    first, second = (draw(kind, tmp_path / name, 2).read_bytes() for name in ("one.svg", "two.svg"))
    assert first == second


@pytest.mark.parametrize(
    ("kind", "n", "panels"),
    [("roc", 3, 1), ("roc", 4, 4), ("reliability", 1, 2), ("reliability", 5, 10), ("forest", 1, 1), ("forest", 6, 1)],
)
def test_every_method_has_its_place_and_no_word_is_cut_off(kind, n, panels, tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(curves, "save", lambda figure, path: seen.setdefault("figure", figure))
    draw(kind, tmp_path / "figure.png", n)
    figure = seen["figure"]
    assert len(figure.axes) == panels
    units = f"{7 if kind == 'forest' else 4} held-out sites"
    assert figure.get_suptitle() == f"title: {units}, 2 seeds"
    if panels > 1:
        names = [axis.get_title(loc="left") for axis in figure.axes]
        assert [name for name in names if name] == list("abcde"[:n])
    figure.draw_without_rendering()
    boxes = [axis.get_window_extent() for axis in figure.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    words = [*figure.texts, *(t for axis in figure.axes for t in (*axis.texts, axis.xaxis.label, axis.yaxis.label))]
    inner = [box for axis in figure.axes if (box := axis.get_tightbbox())]
    for box in [*inner, *(t.get_window_extent() for t in words if t.get_text())]:
        assert box.x0 > -2
        assert box.y0 > -2
        assert box.x1 < figure.bbox.width + 2
        assert box.y1 < figure.bbox.height + 2


def test_roc_holds_the_mean_curve_and_its_band():
    rows = predictions("ab")
    bands = curves.roc_bands(rows)
    expected = roc_band(rows[rows["method"] == "b"])
    assert bands["b"].true_positive_rate == pytest.approx(expected.true_positive_rate)
    (axis,) = axes()
    curves.plot_roc(axis, bands)
    _, a, b = axis.lines  # chance first
    assert b.get_xdata()[1:] == pytest.approx(100 * expected.false_positive_rate)
    assert b.get_ydata()[1:] == pytest.approx(100 * expected.true_positive_rate)
    assert (b.get_xdata()[0], b.get_ydata()[0]) == (0, 0)
    assert a.get_marker() != b.get_marker()
    assert a.get_color() != b.get_color()
    drawn = axis.collections[1].get_paths()[0].vertices
    for edge in (expected.low, expected.high):
        corners = np.column_stack([100 * expected.false_positive_rate, 100 * edge])
        assert all(np.isclose(drawn, corner).all(axis=1).any() for corner in corners[::20])
    told = [t.get_text() for t in axis.get_legend().get_texts()]
    assert told[1] == f"b  {100 * expected.auc:.1f} ({100 * expected.auc_low:.1f} to {100 * expected.auc_high:.1f})"


def test_a_named_roc_curve_stands_out_from_the_others():
    bands = curves.roc_bands(predictions("abcd"))
    (axis,) = axes()
    curves.plot_roc(axis, bands, "c")
    colours = [line.get_color() for line in axis.lines[1:]]
    assert [colour == "0.8" for colour in colours] == [True, True, False, True]
    assert len(axis.collections) == 1
    assert axis.lines[3].get_ydata()[1:] == pytest.approx(100 * bands["c"].true_positive_rate)


def test_roc_says_which_sites_have_no_curve(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(curves, "save", lambda figure, path: seen.append(figure.get_suptitle()))
    rows = predictions("a")
    rows.loc[rows["fold"] == "s1", "label"] = 0
    curves.draw_roc(rows, tmp_path / "figure.png")
    curves.draw_roc(predictions("a"), tmp_path / "figure.png", by=("seed", "fold"))
    assert seen == ["4 held-out sites, 1 with one class left out, 2 seeds", "4 held-out folds, 2 seeds"]


def test_one_site_is_drawn_without_a_band(tmp_path):
    assert curves.draw_roc(predictions("a", sites=1), tmp_path / "roc.png").is_file()
    assert curves.draw_reliability(predictions("a", sites=1), tmp_path / "reliability.png").is_file()


def test_reliability_holds_curve_interval_and_histogram():
    rows = predictions("ab")
    mine = rows[rows["method"] == "b"]
    label, probability, site = (mine[c].to_numpy() for c in ("label", "probability", "site"))
    expected = 100 * reliability(label, probability, 6, "quantile", site)
    found = curves.reliabilities(rows, bins=6)["b"]
    above, below = axes(2)
    curves.plot_reliability(above, below, "b", found, ("#0072B2", "o"))
    curve = above.lines[1]
    assert curve.get_xdata() == pytest.approx(expected["probability"].to_numpy())
    assert curve.get_ydata() == pytest.approx(expected["observed"].to_numpy())
    ends = np.array([segment[:, 1] for segment in above.collections[0].get_segments()])
    assert ends == pytest.approx(expected[["low", "high"]].to_numpy())
    heights = np.array([bar.get_height() for bar in below.patches])
    for part, c, sign in ((heights[:20], 1, 1), (heights[20:], 0, -1)):
        counts = [((probability[label == c] * 20).astype(int) == k).sum() for k in range(20)]
        assert part == pytest.approx(sign * 100 * np.array(counts) / len(label))
    assert abs(heights).sum() == pytest.approx(100)
    each = [
        calibration_error(run["label"].to_numpy(), run["probability"].to_numpy(), 6, "quantile")
        for _, run in mine.groupby("seed")
    ]
    assert f"calibration error {100 * np.mean(each):.1f}" in texts(above)


@pytest.mark.parametrize("metric", ["auc", "brier"])
def test_forest_holds_differences_intervals_and_corrected_p(metric):
    rows = results("abcd")
    found, scores = comparisons(rows, "b", metric), paired_scores(rows, metric)
    differences = scores.sub(scores["b"], axis=0)
    (axis,) = axes()
    curves.plot_forest(axis, found, differences, metric)
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == ["a", "c", "d"]  # from below: the best on top, by either metric
    ticks, marks = axis.collections[0::2], axis.collections[1::2]
    intervals = [line for line in axis.lines if len(set(line.get_ydata())) == 1 and set(line.get_xdata()) != {0, 1}]
    for y, name in enumerate(names):
        row = found.set_index("method").loc[name]
        assert np.asarray(ticks[y].get_offsets())[:, 0] == pytest.approx(100 * differences[name].to_numpy())
        assert np.asarray(marks[y].get_offsets()).tolist() == [[pytest.approx(100 * row["mean_difference"]), y]]
        assert intervals[y].get_xdata() == pytest.approx([100 * row["low"], 100 * row["high"]])
        filled = marks[y].get_facecolor()[0].tolist() != [1, 1, 1, 1]
        assert filled == (row["p_holm"] <= 0.05)
        beside = [t.get_text() for t in axis.texts if t.xy[1] == y]
        assert beside == [
            f"{100 * row['mean_difference']:+.1f}",
            f"{row['better']} : {row['worse']}",
            f"{row['p_holm']:.3f}",
        ]
    left = next(t for t in texts(axis) if "\N{LEFTWARDS ARROW}" in t)
    assert ("worse" in left) == (metric == "auc")
    assert "to b, points" in axis.get_xlabel()


def test_forest_marks_only_what_the_corrected_test_tells_apart(tmp_path, monkeypatch):
    """Six sites that agree: p is 0.031, but with two comparisons 0.062."""
    seen = []
    monkeypatch.setattr(curves, "save", lambda figure, path: seen.append(figure.axes[0]))
    rows = results("abc", sites=6)
    rows["auc"] = rows["fold"].str[1:].astype(int) / 100 + rows["method"].map({"a": 0.5, "b": 0.6, "c": 0.4})
    curves.draw_forest(rows, "a", tmp_path / "forest.png")
    curves.draw_forest(rows[rows["method"] != "c"], "a", tmp_path / "forest.png")
    white = [[m.get_facecolor()[0].tolist() == [1, 1, 1, 1] for m in axis.collections[1::2]] for axis in seen]
    assert white == [[True, True], [False]]
    assert [t for t in texts(seen[0]) if t.startswith("0.")] == ["0.062", "0.062"]
    assert np.asarray(seen[1].collections[0].get_offsets())[:, 0] == pytest.approx(np.full(6, 10.0))


def test_forest_takes_one_cohort_at_a_time(tmp_path):
    two = pd.concat([results(), results().assign(cohort="other")])
    with pytest.raises(BrioError, match="one at a time"):
        curves.draw_forest(two, "a", tmp_path / "forest.png")
    with pytest.raises(BrioError, match="metric 'f1'"):
        curves.draw_forest(results(), "a", tmp_path / "forest.png", metric="f1")


def test_pictures_leave_the_users_matplotlib_alone(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw("roc", tmp_path / "roc.svg", 2)
    assert dict(matplotlib.rcParams) == before
