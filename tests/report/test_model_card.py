"""The model card: the numbers of the summary, the limits in words."""

import json
import re

import pandas as pd
import pytest

from brio.formatting import escape_markdown, format_interval
from brio.report.evidence import read_evidence
from brio.report.write import write_model_card


@pytest.fixture(scope="module")
def card(finished):
    return write_model_card(read_evidence(finished))


def test_it_has_the_numbers_of_the_summary(card, finished):
    summary = json.loads((finished / "summary.json").read_text())
    rows = {line.split(" | ")[0].removeprefix("| "): line.split(" | ") for line in card.splitlines() if " | " in line}
    for name, scores in summary["methods"].items():
        wanted = [scores[m]["mean"] for m in ("acc", "balanced_acc", "sensitivity", "specificity", "brier")]
        assert rows[name][1] == f"{100 * scores['auc']['mean']:.1f}"
        assert rows[name][2] == format_interval(scores["auc"]["interval"])
        assert rows[name][3] == f"{100 * scores['pair_weighted_auc']['mean']:.1f}"
        assert rows[name][4:9] == [f"{100 * v:.1f}" for v in wanted]


def test_it_says_what_it_is_for_and_what_not(card):
    headings = [line for line in card.splitlines() if line.startswith("#")]
    assert re.fullmatch("# Model card: (ridge and brio|brio and ridge) on &lt;em>cohort&lt;/em> & co", headings[0])
    titles = ["Summary", "Model details", "Intended use", "Data", "Evaluation", "Limitations", "Reproduce"]
    assert headings[1:] == [f"## {title}" for title in titles]
    assert "not a medical device" in card
    assert "the mean does not predict the score at a single site" in card


def test_names_are_escaped_once_and_cannot_break_its_tables(card):
    escaped = escape_markdown("p < 0.001, <b>bold</b> & <a href=x>")
    assert escaped == "p < 0.001, &lt;b>bold&lt;/b> & &lt;a href=x>", "p values stay readable"
    assert "&lt;script>window.pwned=1&lt;/script>" in card
    for words in ("&amp;lt;", "<script>", "<img"):
        assert words not in card
    widths = {line.count("|") - line.count("\\|") for line in card.splitlines() if line.startswith("| ")}
    assert widths == {5, 11}, "four columns of sites, ten of results"


def test_folds_are_not_averaged_over_seeds_and_are_no_sites(by_folds):
    """Another seed makes other folds under the same numbers."""
    card = write_model_card(read_evidence(by_folds))
    rows = pd.read_csv(by_folds / "results.csv", dtype={"fold": str})
    auc = rows[rows["method"] == "ridge"].set_index(["fold", "seed"])["auc"]
    (low, at_low), (high, at_high) = ((100 * auc[place], place) for place in (auc.idxmin(), auc.idxmax()))
    (line,) = [line for line in card.splitlines() if "ranges from" in line]
    assert f"from {low:.1f}% (fold " in line
    assert f"to {high:.1f}% (fold " in line
    named = [(fold, int(seed)) for fold, seed in re.findall(r"fold (\d+) of seed (\d)", line)]
    assert [auc[place] for place in named] == [auc[at_low], auc[at_high]]
    assert "at one site" not in card
