"""One rule for each kind of number, wherever it is printed."""

import math

import pandas as pd
import pytest

from brio.formatting import (
    bracket_interval,
    format_detectable,
    format_frame,
    format_interval,
    format_number,
    format_p,
    format_points,
    format_signed,
    format_table,
    state_p,
    typeset,
)
from brio.protocol.calibration import WHOLE_COEFFICIENT
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


@pytest.mark.parametrize(
    ("ends", "text", "rule"),
    [
        ((0.001, 1.0), "0.1 to 100.0", []),
        ((0.0, 1.0), "", []),
        ((-0.5, 0.5), "", [format_points]),
        ((-0.49, 0.5), "-49.0 to +50.0", [format_points]),
        ((-239.6, 315.3), "", [format_signed, 100]),
        ((-1.0, 3.0), "", [format_number, WHOLE_COEFFICIENT]),
        ((-1.0, 2.9), "-1.00 to 2.90", [format_number, WHOLE_COEFFICIENT]),
    ],
)
def test_an_interval_as_wide_as_all_that_could_be_is_unknown(ends, text, rule):
    assert format_interval(ends, *rule) == (text or "unknown: too wide")
    assert bracket_interval(ends, *rule) == f" ({text or 'unknown: too wide'})"


def test_a_detectable_difference_is_one_that_could_be():
    assert [format_detectable(d) for d in (0.123, 1.5, math.nan, None)] == ["12.3", "above 100", "-", "-"]


def test_signs_of_a_printed_page_change_numbers_alone():
    assert typeset("-1.0 to -0.5") == "−1.0 to −0.5"
    assert typeset("brio-plus-2") == "brio-plus-2"


def test_bars_in_cells_do_not_make_columns():
    lines = format_table(["a", "b"], [["x|y", "z"], [r"already\|escaped", ""]]).splitlines()
    assert lines[2] == r"| x\|y | z |"
    assert lines[3] == r"| already\|escaped |  |"
