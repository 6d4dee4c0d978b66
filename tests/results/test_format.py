"""One rule for each kind of number, wherever it is printed."""

import math

import pandas as pd
import pytest

from brio.formatting import format_frame, format_interval, format_p, format_points, format_table, state_p, typeset
from brio.report.html import typeset_formats
from brio.studies.summaries import describe_differences


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0, "< 0.001"), (0.0007, "< 0.001"), (0.001, "0.001"), (0.0312, "0.031"), (0.0999, "0.100"), (0.2, "0.20")],
)
def test_p_is_printed_one_way_everywhere(p, text):
    assert format_p(p) == typeset_formats()["p_value"](p) == text
    assert state_p(p) == (f"p {text}" if "<" in text else f"p = {text}")
    assert format_frame(pd.DataFrame({"p": [p]})).splitlines()[-1] == f"| {text} |"
    arms = pd.DataFrame({"arm": ["brio", "gcn"], "minus brio": [None, 1.0], "p": [None, p], "warning": ""})
    if p > 0.05:
        assert f"gcn (+1.0 points, p = {text})" in describe_differences(arms, "brio")[0]


def test_missing_numbers_are_a_dash():
    for write in (format_p, format_points):
        assert write(None) == write(math.nan) == "-"
    assert format_interval([0.5, math.nan]) == "-"
    assert typeset_formats()["percent"](None) == typeset_formats()["interval"](None) == "–"


def test_signs_of_a_printed_page_change_numbers_alone():
    assert typeset("-1.0 to -0.5") == "−1.0 to −0.5"
    assert typeset("brio-plus-2") == "brio-plus-2"


def test_bars_in_cells_do_not_make_columns():
    lines = format_table(["a", "b"], [["x|y", "z"], [r"already\|escaped", ""]]).splitlines()
    assert lines[2] == r"| x\|y | z |"
    assert lines[3] == r"| already\|escaped |  |"
