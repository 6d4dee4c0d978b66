"""The audit of the real scans finds the documented defects of the release, all of them and no others."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from brio.cohort import Cohort
from brio.cohort.auditing import Audit, audit, format_audit
from brio.cohort.readers import import_cohort

pytestmark = [pytest.mark.abide, pytest.mark.soak]


@pytest.fixture(scope="module")
def cohorts(abide_folder: Path, tmp_path_factory) -> list[Cohort]:
    out = tmp_path_factory.mktemp("abide")
    cohorts = [import_cohort("packed", abide_folder, out / atlas, atlas=atlas) for atlas in ("aal116", "cc200")]
    columns = ["participant_id", "site", "label", "tr", "n_frames", "dead_fraction_aal116", "dead_fraction_cc200"]
    return [replace(cohort, participants=cohort.participants[columns]) for cohort in cohorts]


@pytest.fixture(scope="module")
def both(cohorts: list[Cohort]) -> Audit:
    return audit(cohorts[0], companions=cohorts[1:])


def test_the_two_doubled_scans_and_no_other(both: Audit) -> None:
    pairs = {pair.sites: pair for pair in both.duplicates}
    assert set(pairs) == {("UM_1", "UM_1"), ("YALE", "YALE")}
    um, yale = pairs["UM_1", "UM_1"], pairs["YALE", "YALE"]
    assert (um.kind, um.same_label) == ("identical", True)
    assert um.second in both.exclusions
    assert um.first not in both.exclusions
    assert (yale.kind, yale.same_label) == ("near", False)
    assert yale.correlation == pytest.approx(0.96, abs=0.02)
    assert {yale.first, yale.second} <= set(both.exclusions)
    assert um.atlases == yale.atlases == ("aal116", "cc200")


def test_unrelated_scans_stay_far_below_the_threshold(both: Audit) -> None:
    assert list(both.next_closest) == ["aal116", "cc200"]
    assert all(pair.correlation < 0.2 for pair in both.next_closest.values())
    assert both.not_compared == 0


def test_one_atlas_misses_a_scan_that_the_other_shows(both: Audit) -> None:
    assert Counter(map(both.site_of.get, both.exclusions)) == {"UM_1": 1, "YALE": 2, "CALTECH": 2}
    explained = both.explain_exclusions().items()
    assert sorted(reasons for participant, reasons in explained if both.site_of[participant] == "CALTECH") == [
        ["65 of 116 ROIs without signal in aal116", "118 of 200 ROIs without signal in cc200"],
        ["80 of 200 ROIs without signal in cc200"],
    ]


def test_what_remains(both: Audit, cohorts: list[Cohort]) -> None:
    assert (both.n_before, both.n_after) == (1035, 1030)
    assert both.classes_before == (530, 505)
    assert both.classes_after == (528, 502)
    assert len(set(cohorts[0].sites)) == 20
    assert cohorts[0].select(both.keep).n_frames.mean() == pytest.approx(194.5, abs=0.05)
    assert (both.one_class, both.small_class) == ((), ())


def test_rois_without_signal_by_site(both: Audit, cohorts: list[Cohort], abide_folder: Path) -> None:
    table = pd.read_csv(abide_folder / "participants.tsv", sep="\t", dtype={"participant_id": str})
    for cohort, column, n in zip(cohorts, ("dead_rois_aal", "dead_rois_cc200"), (87, 46), strict=True):
        atlas, stated = cohort.atlas.name, table.set_index("participant_id")[column]
        for other in cohorts:
            share = other.participants.set_index("participant_id")[f"dead_fraction_{atlas}"]
            assert (share * cohort.n_rois).round().to_dict() == stated.to_dict()
        dead = {rois.participant_id: rois.n_rois for rois in both.dead_rois if rois.atlas == atlas}
        assert dead == stated[stated > 0].to_dict()
        assert len(dead) == n
    top = list(both.dead_by_site["aal116"].items())[:5]
    assert top == [("SBL", 21), ("CALTECH", 17), ("PITT", 17), ("CMU", 13), ("SDSU", 7)]
    for test in both.dead_patterns.values():
        assert test.p < 0.01
        assert test.accuracy > 1.2 * test.by_chance


def test_lengths_and_repetition_times(both: Audit) -> None:
    length, tr = both.length_by_site, both.repetition_time
    assert length is not None
    assert tr is not None
    assert (length.shortest, length.longest) == (78, 316)
    assert length.all_shortest == {"OHSU": 26}
    assert set(length.differs_inside) == {"CMU", "KKI", "MAX_MUN", "STANFORD", "USM"}
    assert tr.differs_inside == ("CMU",)
    assert tr.sites_by_value["1.5"] == ["CMU", "OLIN", "PITT"]
    assert both.non_finite == both.too_short == ()


def test_the_text_fits_a_screen_and_the_json_holds_everything(both: Audit) -> None:
    lines = format_audit(both).splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 130
    assert "  5 of 1035 scans; 1030 remain (528 TD, 502 ASD)" in lines
    assert len(json.loads(json.dumps(both.to_dict(), allow_nan=False))["dead_rois"]) == 87 + 46
