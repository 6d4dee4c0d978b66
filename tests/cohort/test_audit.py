"""The audit on simulated cohorts: every planted defect is found with its participant, and nothing else."""

import dataclasses
import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest
from file_layouts import refuse
from scipy.stats import contingency, f_oneway
from sklearn.metrics import roc_auc_score

from brio.cohort import Atlas, Cohort
from brio.cohort.auditing import Audit, AuditRules, audit, findings, format_audit
from brio.cohort.auditing.audit import ExclusionReason
from brio.cohort.scans import clean_scan
from brio.cohort.simulate import Simulation, simulate
from commands import command

N, P = 48, 24
SITES = np.repeat(["A", "B", "C", "D"], N // 4)
LABELS = np.tile([0, 1], N // 2)
LENGTHS = {"A": 90, "B": 120, "C": 120, "D": 170}


def noise(seed: int, n_frames: int, n_rois: int = P) -> np.ndarray:
    """Band-limited noise, 0.01 to 0.1 Hz at a repetition time of 2 s, around a large mean; ROIs are correlated."""
    rng = np.random.default_rng(seed)
    frequency = np.fft.rfftfreq(n_frames, d=2.0)
    spectrum = np.fft.rfft(rng.normal(size=(n_frames, n_rois)), axis=0)
    spectrum[(frequency < 0.01) | (frequency > 0.1)] = 0.0
    series = np.fft.irfft(spectrum, n=n_frames, axis=0)
    mixing = np.eye(n_rois) + 0.15 * np.random.default_rng(99).normal(size=(n_rois, n_rois))
    return 500.0 + 20.0 * series @ mixing


CLEAN = [noise(i, LENGTHS[s]) for i, s in enumerate(SITES)]


def scans() -> list[np.ndarray]:
    return [x.copy() for x in CLEAN]


def cohort(series: list[np.ndarray], labels: np.ndarray = LABELS, **more: object) -> Cohort:
    settings: dict = {"site": SITES, "label": labels, "atlas": Atlas.unnamed(P, "own"), **more}
    return Cohort.from_scans(series, **settings)


def participant(i: int) -> str:
    return f"s{i + 1:05d}"


def with_all_defects() -> list[np.ndarray]:
    series = scans()
    series[1][:, :7] = 0.0  # 7 of 24: over a quarter
    series[2][:, 3] = np.nan  # one ROI outside the field of view
    series[3][10:15, 4] = np.nan  # five frames to drop
    series[4] = series[4][:39]  # too short
    series[5][20:75, 0] = np.inf  # too short once these frames are dropped
    series[6][:] = np.nan  # nothing there
    series[7][:] = 3.0  # no signal anywhere
    return series


def with_duplicates() -> list[np.ndarray]:
    series = scans()
    series[14] = series[12] * 3.0 - 7.0  # same label, same site, other units
    series[15] = series[12 + 5] + np.random.default_rng(5).normal(scale=2.0, size=(120, P))  # same label, noise added
    series[25] = series[24].copy()  # other label
    series[36] = series[0] + np.zeros(1)  # other site
    return series


@pytest.fixture(scope="module")
def defects() -> Audit:
    return audit(cohort(with_all_defects()))


def test_a_clean_cohort_is_left_alone(tmp_path) -> None:
    saved = cohort(scans()).save(tmp_path / "cohort")
    result = audit(str(saved.path))
    assert result.to_dict() == audit(saved).to_dict()
    assert result.exclusions == {}
    assert result.keep.all()
    assert result.duplicates == result.dead_rois == result.non_finite == result.too_short == ()
    assert result.one_class == result.small_class == ()
    assert result.next_closest["own"].correlation < 0.35


def test_each_defect_is_named_with_its_participant_and_nothing_else(defects: Audit) -> None:
    assert defects.explain_exclusions() == {
        participant(1): ["7 of 24 ROIs without signal in own"],
        participant(4): ["only 39 valid frames in own"],
        participant(5): ["only 35 valid frames in own"],
        participant(6): ["no finite value in own"],
        participant(7): ["24 of 24 ROIs without signal in own"],
    }
    gaps, dead = {3: 5, 5: 55, 6: 90}, {1: 7, 2: 1, 6: 24, 7: 24}
    with_gaps = {(participant(i), n, 90) for i, n in gaps.items()}
    assert {(f.participant_id, f.n_frames, f.of) for f in defects.non_finite} == with_gaps
    assert {f.participant_id: f.n_rois for f in defects.dead_rois} == {participant(i): n for i, n in dead.items()}
    assert defects.dead_by_site == {"own": {"A": 4}}
    assert [f.participant_id for f in defects.too_short] == [participant(4), participant(5), participant(6)]
    assert defects.duplicates == ()
    assert (defects.n_before, defects.n_after) == (48, 43)
    assert defects.classes_before == (24, 24)
    assert sum(defects.classes_after) == 43


def test_a_quarter_of_the_rois_is_not_over_a_quarter() -> None:
    series = scans()
    series[1][:, :6] = 0.0
    assert audit(cohort(series)).exclusions == {}
    assert list(audit(cohort(series), AuditRules(max_dead_fraction=0.24)).exclusions) == [participant(1)]
    series[4] = series[4][:40]
    assert audit(cohort(series)).exclusions == {}, "neither are 40 frames too few"


def test_duplicates_of_one_label_and_site_lose_the_second_others_lose_both() -> None:
    result = audit(cohort(with_duplicates()))
    assert result.explain_exclusions() == {
        participant(0): [f"the same scan as {participant(36)}, but with different sites"],
        participant(14): [f"the same scan as {participant(12)}, which is kept"],
        participant(17): [f"the same scan as {participant(15)}, which is kept"],
        participant(24): [f"the same scan as {participant(25)}, but with different labels"],
        participant(25): [f"the same scan as {participant(24)}, but with different labels"],
        participant(36): [f"the same scan as {participant(0)}, but with different sites"],
    }
    assert [(p.first, p.second, p.kind, p.same_label, p.same_site) for p in result.duplicates] == [
        (participant(0), participant(36), "identical", True, False),
        (participant(12), participant(14), "identical", True, True),
        (participant(15), participant(17), "near", True, True),
        (participant(24), participant(25), "identical", False, True),
    ]


@pytest.mark.parametrize(
    ("part", "missing", "aligned", "common"),
    [
        (slice(6, None), [], "end", 114),
        (slice(None, 101), [], "start", 101),
        (slice(45, None), [], "end", 75),
        (slice(None), [30, 31, 32], "both", 117),
    ],
)
def test_a_trimmed_copy_and_one_with_missing_frames_are_found(part: slice, missing: list, aligned: str, common: int):
    series = scans()
    series[14] = series[12][part].copy()
    series[14][missing] = np.nan
    result = audit(cohort(series))
    (pair,) = result.duplicates
    assert (pair.first, pair.second, pair.kind) == (participant(12), participant(14), "near")
    assert (pair.aligned, pair.common_frames) == (aligned, common)
    assert pair.correlation > 0.95
    assert list(result.exclusions) == [participant(14)]


def test_copies_linked_in_a_chain_are_one_group() -> None:
    series = scans()
    series[12] = np.hstack([series[12][:, :14], noise(100, 120)[:, 14:]])
    series[14] = np.hstack([series[12][:, :14], noise(101, 120)[:, 14:]])
    series[16] = np.hstack([noise(102, 120)[:, :10], series[14][:, 10:]])
    result = audit(cohort(series))
    linked = [(participant(12), participant(14)), (participant(14), participant(16))]
    assert [(p.first, p.second) for p in result.duplicates] == linked
    assert list(result.exclusions) == [participant(14), participant(16)]


def test_the_copy_that_stays_is_one_that_nothing_else_excludes() -> None:
    series = scans()
    series[14] = series[12].copy()
    series[12][:, :8] = 0.0
    result = audit(cohort(series))
    reasons = ["8 of 24 ROIs without signal in own", f"the same scan as {participant(14)}, which is kept"]
    assert result.explain_exclusions() == {participant(12): reasons}


@pytest.mark.parametrize("artefact", [lambda n: 5000.0 * (np.arange(n) == 0), lambda n: np.linspace(0.0, 400.0, n)])
def test_a_spike_or_drift_of_all_scans_makes_no_duplicates(artefact) -> None:
    series = [x + artefact(len(x))[:, None] for x in CLEAN]
    result = audit(cohort(series))
    assert result.duplicates == ()
    plain = np.corrcoef(series[12][:, 0], series[13][:, 0])[0, 1]
    assert plain > 0.9, "the artefact is large enough to deceive a plain correlation"


def test_the_rule_reads_no_label(defects: Audit) -> None:
    shuffled = np.random.default_rng(0).permutation(LABELS)
    assert audit(cohort(with_all_defects(), shuffled)).exclusions == defects.exclusions


def test_the_order_of_the_participants_does_not_matter() -> None:
    series = with_duplicates()
    series[2][:, :3] = series[13][:, :2] = series[26][:, 5] = series[40][:, :9] = 0.0
    straight = audit(cohort(series))
    order = np.random.default_rng(0).permutation(N)
    names = [participant(i) for i in order]
    turned = audit(cohort([series[i] for i in order], LABELS[order], site=SITES[order], participant_id=names))
    assert turned.exclusions == straight.exclusions
    assert turned.dead_patterns == straight.dead_patterns
    found, expected = ([(p.first, p.second, p.kind) for p in a.duplicates] for a in (turned, straight))
    assert found == expected
    assert (turned.keep == straight.keep[order]).all()


def test_a_companion_adds_its_exclusions_and_names_its_atlas() -> None:
    series, other = scans(), [noise(1000 + i, LENGTHS[s], 30) for i, s in enumerate(SITES)]
    other[8][:, :12] = 0.0
    other[9] = other[9][:30]
    order = np.arange(N)[::-1][:-1]  # another order, and one participant is missing
    given = {"site": SITES[order], "participant_id": [participant(i) for i in order]}
    companion = cohort([other[i] for i in order], LABELS[order], atlas=Atlas.unnamed(30, "second"), **given)
    result = audit(cohort(series), companions=[companion])
    assert result.explain_exclusions() == {
        participant(8): ["12 of 30 ROIs without signal in second"],
        participant(9): ["only 30 valid frames in second"],
    }
    assert result.atlases == {"own": 48, "second": 47}
    assert "with second (47 of 48)" in format_audit(result).splitlines()[0]


def test_a_pair_found_in_two_atlases_is_one_pair() -> None:
    series = scans()
    series[14] = series[12].copy()
    other = [x[:, ::-1] for x in series]
    result = audit(cohort(series), companions=[cohort(other, atlas=Atlas.unnamed(P, "second"))])
    (pair,) = result.duplicates
    assert pair.atlases == ("own", "second")
    assert set(result.next_closest) == {"own", "second"}
    # the same name twice must not hide one of the two
    assert len(audit(cohort(series), companions=[cohort(other, name="again")]).atlases) == 2


def test_a_column_of_the_participants_stands_in_for_an_atlas() -> None:
    share = np.zeros(N)
    share[[3, 20]] = 0.4, 0.25
    covariates = pd.DataFrame({"dead_fraction_cc200": share, "dead_fraction_own": 0.9})
    covariates.loc[5, "dead_fraction_cc200"] = np.nan
    result = audit(cohort(scans(), covariates=covariates))
    # the cohort's own atlas was read: what a column says about it does not count
    reason = "40% of the ROIs without signal in cc200 (column dead_fraction_cc200)"
    assert result.explain_exclusions() == {participant(3): [reason]}
    assert result.dead_by_site == {"cc200": {"A": 1, "B": 1}}
    covariates.loc[7, "dead_fraction_cc200"] = 40
    refuse(r"participant s00008: dead_fraction_cc200 is '40.0'", audit, cohort(scans(), covariates=covariates))


def test_errors_name_what_is_wrong() -> None:
    own = cohort(scans())
    strangers = cohort(scans(), participant_id=[f"x{i}" for i in range(N)])
    refuse("no scan in common", audit, own, companions=[strangers])
    message = "participant s00001 has label 1 in companion 'other' and 0 in 'in memory'"
    refuse(message, audit, own, companions=[cohort(scans(), 1 - LABELS, name="other")])


def test_sites_with_one_class_or_few_are_named_not_excluded() -> None:
    labels = LABELS.copy()
    labels[SITES == "A"] = 0
    labels[SITES == "B"] = [1] * 4 + [0] * 8
    result = audit(cohort(scans(), labels))
    assert (result.one_class, result.small_class) == (("A",), ("B",))
    assert result.exclusions == {}
    assert [c.after for c in result.sites] == [(12, 0), (8, 4), (6, 6), (6, 6)]
    text = format_audit(result)
    assert "one class only: A 12/0" in text
    assert "fewer than 5 in either class: B 8/4" in text


def test_a_site_that_loses_all_its_scans_is_said() -> None:
    result = audit(cohort([x[:20] for x in CLEAN[:12]] + CLEAN[12:]))
    assert result.n_after == 36
    text = format_audit(result)
    assert "no scan left after the exclusions: A" in text
    nothing = audit(cohort([x[:20] for x in CLEAN]))
    assert (nothing.n_after, nothing.label_by_site) == (0, None)
    assert "Scan length\n  none" in format_audit(nothing)


def test_to_dict_is_json_and_complete(defects: Audit) -> None:
    back = json.loads(json.dumps(defects.to_dict(), allow_nan=False))
    assert back["exclusions"].keys() == defects.exclusions.keys()
    for scan, reasons in back["exclusions"].items():  # codes, from which the sentences can be written again
        stored = [ExclusionReason(**{k: tuple(v) if isinstance(v, list) else v for k, v in r.items()}) for r in reasons]
        assert [str(reason) for reason in stored] == defects.explain_exclusions()[scan]
    assert back["rules"]["min_frames"] == 40
    assert [d["participant_id"] for d in back["dead_rois"]] == [d.participant_id for d in defects.dead_rois]
    assert "keep" not in back


def test_lines_are_short_lists_in_full_and_long_ones_by_site(defects: Audit) -> None:
    lines = format_audit(defects).splitlines()
    assert any(line.split()[:2] == [participant(1), "A"] for line in lines)
    assert all(len(line) <= 140 for line in lines)
    series = scans()
    for i in range(14, 30):
        series[i][4] = np.nan
        series[i][:, :8] = 0.0
    long = format_audit(audit(cohort(series))).splitlines()
    assert "  by site: B 10, C 6" in long
    assert not any(participant(20) in line for line in long)


def test_coverage_agrees_with_what_the_estimator_uses() -> None:
    made = cohort(with_all_defects())
    coverage = findings.read_coverage(made)
    for i in (0, 1, 2, 3, 4, 5):
        frames, alive = clean_scan(made.scan(i))
        assert (coverage.alive[i] == alive).all()
        assert coverage.n_valid[i] == len(frames)


def test_patterns_without_a_site_do_not_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brio.cohort.auditing.findings.PERMUTATIONS", 199)
    ids = np.arange(60).astype(str)
    results = []
    for seed in range(24):
        rng = np.random.default_rng(seed)
        alive = rng.permuted(np.tile(np.arange(40) >= 3, (60, 1)), axis=1)
        results.append(findings.predict_site_from_patterns(alive, rng.choice(["A", "B", "C"], 60), ids))
    p = np.array([r.p for r in results])
    # the p value of a true null hypothesis is uniform
    assert 0.3 < p.mean() < 0.7
    assert (p < 0.05).mean() <= 0.125
    assert abs(np.mean([r.accuracy - r.by_chance for r in results])) < 0.04
    order, sites = rng.permutation(60), rng.choice(["A", "B", "C"], 60)
    turned = findings.predict_site_from_patterns(alive[order], sites[order], ids[order])
    assert turned == findings.predict_site_from_patterns(alive, sites, ids)
    assert findings.predict_site_from_patterns(alive, np.full(60, "A"), ids) is None
    assert findings.predict_site_from_patterns(np.ones((60, 4), dtype=bool), np.tile(["A", "B"], 30), ids) is None


def test_a_region_that_is_dead_at_one_whole_site_predicts_the_site() -> None:
    """With one more scan elsewhere, and without it; no site says nothing about itself by being like the others."""
    for elsewhere in ([], [40]):
        made = scans()
        for i in [*np.flatnonzero(SITES == "B"), *elsewhere]:
            made[i][:, 3] = 0.0
        found = audit(cohort(made))
        (test,) = found.dead_patterns.values()
        assert test.p == 0.001
        assert test.accuracy > test.by_chance + 0.1
        assert "the ROIs without signal predict the site (p" in format_audit(found)
    everywhere = [np.where(np.arange(P) == 3, 0.0, scan) for scan in CLEAN]
    assert "the ROIs without signal do not significantly predict the site" in format_audit(audit(cohort(everywhere)))


def test_scans_that_share_no_missing_region_are_not_said_to_be_nearest_to_nobody() -> None:
    """Three regions, each missing in one scan: their nearest scans are all others, so chance is not zero."""
    made = scans()
    for i in (0, 13, 26):
        made[i][:, i % 7] = 0.0
    (test,) = audit(cohort(made)).dead_patterns.values()
    assert min(test.accuracy, test.by_chance) > 0.15
    assert test.p > 0.05


def test_screening_and_full_comparison_agree_with_all_pairs() -> None:
    made = cohort(with_duplicates()).select(np.r_[0:2, 12:18, 24:26, 36:38])
    coverage = findings.read_coverage(made)
    pairs, closest, _ = findings.find_duplicates(made, coverage)
    every = {}
    for i, j in itertools.combinations(range(len(made)), 2):
        both = [findings.compare_scans(made, coverage, i, j, aligned) for aligned in ("start", "end")]
        every[i, j] = max(pair.correlation for pair in both if pair is not None)
    over = {pair for pair, r in every.items() if r > 0.5}
    assert len(over) == 4
    assert {(pair.first, pair.second) for pair in pairs} == {(made.ids[i], made.ids[j]) for i, j in over}
    under = [r for r in every.values() if r <= 0.5]
    # the nearest pairs are chosen by the screening, so the closest of all may be missed by a little
    assert max(under) - 0.1 < closest.correlation <= max(under)


def test_a_limit_on_comparisons_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    series = [x[:90] for x in scans()]
    for i in range(1, 8):
        series[i] = series[0] + 0.5 * (series[i] - 500.0)
    monkeypatch.setattr("brio.cohort.auditing.findings.MOST_COMPARED", 10)
    result = audit(cohort(series))
    assert result.not_compared > 0
    assert any("not compared in full" in line for line in format_audit(result).splitlines())


# ---------------------------------------------------------------- associations, against independent computations


def of_lengths(lengths: np.ndarray, sites: np.ndarray, labels: np.ndarray, tr: np.ndarray | None = None) -> Cohort:
    scans = [np.zeros((n, 2)) for n in lengths]
    covariates = None if tr is None else pd.DataFrame({"tr": tr})
    return Cohort.from_scans(scans, site=sites, label=labels, covariates=covariates)


@pytest.fixture(scope="module")
def mixed() -> Cohort:
    rng = np.random.default_rng(0)
    sites = rng.choice(list("ABCDE"), 200)
    labels = (rng.random(200) < np.where(sites == "A", 0.8, 0.4)).astype(int)
    base = {"A": 60, "B": 90, "C": 90, "D": 120, "E": 150}
    lengths = np.array([base[s] for s in sites])
    varies = np.isin(sites, ["D", "E"])
    lengths[varies] += rng.integers(0, 30, varies.sum()) + 10 * labels[varies]
    return of_lengths(lengths, sites, labels)


ALIKE = [
    *[
        ("1", "1.00"),
        ("10", "1e1"),
        ("01", "1"),
        ("1", "1.0", "01"),
        ("A", "\u0410"),
        ("A", "\u0391", "a"),
        ("NYU", "nyu"),
    ],
    *[
        ("site_1", "site 1"),
        ("site-01", "site-1"),
        ("Site1", "site 1", "site-01"),
        ("S-1-2", "S 1_02"),
        ("\u0421\u0410", "CA"),
    ],
]
UNLIKE = [
    ("site1", "site2"),
    ("site_1_2", "site_12"),
    ("1", "10"),
    ("1.5", "15"),
    ("A", "B"),
    ("+", "-"),
    ("北", "南"),
    ("a1", "1a"),
]


@pytest.mark.parametrize("names", [*ALIKE, *UNLIKE])
def test_sites_that_may_be_one_are_a_finding(names) -> None:
    given = cohort(scans(), site=np.resize([*names, "other"], N))
    result = audit(given)
    assert set(given.sites) == {*names, "other"}
    assert result.similar_sites == ((tuple(sorted(names)),) if names in ALIKE else ())
    assert ("perhaps one site" in format_audit(result)) == (names in ALIKE)
    assert json.loads(json.dumps(result.to_dict()))["similar_sites"] == [*map(list, result.similar_sites)]


@pytest.mark.parametrize(
    "names",
    [("\u00e9", "e\u0301"), ("A", "\uff21"), ("A", "A "), ("site 1", " site\u00a0\u2003 1"), ("\u212b", "\u00c5")],
)
def test_sites_that_are_one_for_certain_are_one(names, tmp_path) -> None:
    given = cohort(scans(), site=np.resize([*names, "other"], N))
    assert len(set(given.sites)) == 2
    assert audit(given).similar_sites == ()
    assert set(given.save(tmp_path / "cohort").sites) == set(given.sites)


def test_a_site_may_be_called_like_a_missing_value(tmp_path) -> None:
    names = ["NA", "nan", "None", "null"]
    saved = cohort(scans(), site=np.resize(names, N)).save(tmp_path / "cohort")
    assert saved.sites.tolist() == np.resize(names, N).tolist()
    for missing in (None, np.nan, pd.NA, "", " "):
        refuse("column 'site' is empty in row 5", cohort, scans(), site=[*"ABCD", missing, *"ABCDEFG"] * 4)


def test_label_by_site_is_cramers_v_of_two_sites_or_more(mixed: Cohort) -> None:
    result = findings.measure_label_by_site(mixed)
    table = pd.crosstab(mixed.sites, mixed.labels).to_numpy()
    assert result.cramers_v == pytest.approx(contingency.association(table, method="cramer"))
    assert result.p < 0.01
    assert findings.measure_label_by_site(mixed.select(mixed.sites == "A")).cramers_v is None


def test_cramers_v_by_chance_is_what_shuffled_labels_give() -> None:
    rng = np.random.default_rng(1)
    sites = np.repeat(list("ABCDEFGHIJ"), 20)
    labels = np.tile([0, 1], 100)
    made = of_lengths(np.full(200, 3), sites, labels)
    tables = [made.participants.assign(label=rng.permutation(labels)) for _ in range(40)]
    drawn = [findings.measure_label_by_site(dataclasses.replace(made, participants=table)) for table in tables]
    squares = [d.cramers_v**2 for d in drawn if d.cramers_v is not None]
    assert np.sqrt(np.mean(squares)) == pytest.approx(drawn[0].by_chance, rel=0.1)


def test_length_by_site(mixed: Cohort) -> None:
    result = findings.measure_length_by_site(mixed)
    groups = [mixed.n_frames[mixed.sites == s] for s in "ABCDE"]
    ratio = f_oneway(*groups).statistic * 4 / (200 - 5)  # between over within
    assert result.eta_squared == pytest.approx(ratio / (1 + ratio))
    assert set(result.differs_inside) == {"D", "E"}
    assert result.differs_inside["D"] == (groups[3].min(), groups[3].max())
    assert result.all_shortest == {"A": len(groups[0])}
    assert (result.shortest, result.longest) == (60, groups[4].max())


def test_one_length_has_nothing_to_tell() -> None:
    alike = of_lengths(np.full(8, 50), np.repeat(["A", "B"], 4), np.tile([0, 1], 4))
    site, label = findings.measure_length_by_site(alike), findings.measure_length_by_label(alike)
    assert site.eta_squared is None
    assert site.all_shortest == site.differs_inside == {}
    assert (label.auc, label.p, label.auc_inside) == (0.5, 1.0, None)


def test_length_by_label(mixed: Cohort) -> None:
    result = findings.measure_length_by_label(mixed)
    assert result.auc == pytest.approx(roc_auc_score(mixed.labels, mixed.n_frames))
    inside = {s: roc_auc_score(mixed.labels[mixed.sites == s], mixed.n_frames[mixed.sites == s]) for s in "DE"}
    assert result.auc_by_site == pytest.approx(inside)
    assert result.auc_inside == pytest.approx(np.mean(list(inside.values())))
    # the planted effect inside sites runs against the one between them
    assert result.auc < 0.5 < result.auc_inside


def test_repetition_time_by_site() -> None:
    sites, labels = np.repeat(["A", "B", "C"], 4), np.tile([0, 1], 6)
    tr = np.array([2.0, 2.0, 2.0, np.nan, 1.5, 1.5, 2.0, 2.0, 0.79999, 0.8, 0.8, 0.8])
    result = findings.summarise_repetition_times(of_lengths(np.full(12, 5), sites, labels, tr))
    assert result.by_site == {"A": {"2": 3}, "B": {"1.5": 2, "2": 2}, "C": {"0.8": 4}}
    assert result.sites_by_value == {"0.8": ["C"], "1.5": ["B"], "2": ["A", "B"]}
    assert (result.differs_inside, result.unknown) == (("B",), 1)
    assert findings.summarise_repetition_times(of_lengths(np.full(12, 5), sites, labels)) is None
    assert findings.summarise_repetition_times(of_lengths(np.full(12, 5), sites, labels, np.full(12, np.nan))) is None


def test_many_repetition_times_and_those_nobody_stated_are_said() -> None:
    made = simulate(Simulation(n_sites=3, per_class=10, n_rois=8, frames=60))
    tr = 1.0 + 0.1 * np.arange(len(made))
    tr[:2] = np.nan
    text = format_audit(audit(dataclasses.replace(made, participants=made.participants.assign(tr=tr))))
    assert re.search(r"and \d+ more values", text)
    assert "several values at site01, site02, site03" in text
    assert "not given for 2 scans" in text


def make_people(n_sites=4, per_site=30, seed=0, n_frames=50, **columns) -> Cohort:
    """Sites with both classes; each column is a function of (rng, label, number of the site)."""
    rng = np.random.default_rng(seed)
    site, label = np.repeat(np.arange(n_sites), per_site), np.tile([0, 1], n_sites * per_site // 2)
    made = {name: make(rng, label, site) for name, make in columns.items()}
    table = pd.DataFrame(made, index=range(len(site)))
    scans = rng.normal(size=(len(site), n_frames, 3))
    names = [f"site{k}" for k in site]
    return Cohort.from_scans(scans, site=names, label=label, covariates=table, classes=("control", "patient"))


def test_covariates_that_differ_between_classes_are_warnings(tmp_path):
    cohort = make_people(
        age=lambda rng, label, site: rng.normal(25, 8, len(label)) + 20 * label,
        sex=lambda rng, label, site: np.where(rng.uniform(size=len(label)) < 0.1 + 0.8 * label, "M", "F"),
        mean_fd=lambda rng, label, site: rng.lognormal(-1.9 + 1.4 * label, 0.4),
        fiq=lambda rng, label, site: rng.normal(100, 15, len(label)),
        handedness=lambda rng, label, site: rng.choice(["left", "right"], len(label)),
        ados=lambda rng, label, site: np.where(label == 1, 12.0, np.nan),
        scan_id=lambda rng, label, site: np.arange(len(label)) + 1000 * label,
    )
    found = {one.column: one for one in audit(cohort).covariates}
    assert list(found) == ["age", "sex", "mean_fd", "fiq", "handedness"]
    assert [name for name, one in found.items() if one.warn] == ["age", "sex", "mean_fd"]
    assert found["sex"].kind == "category"
    assert found["sex"].auc == pytest.approx(0.9, abs=0.04)
    labels, age = cohort.labels, cohort.participants["age"].to_numpy()
    assert found["age"].auc == pytest.approx(roc_auc_score(labels, age))
    said = command("audit", cohort.save(tmp_path / "cohort").path)
    assert len([line for line in said.out.splitlines() if line.endswith("WARNING: differs between classes")]) == 3
    stricter = json.loads(command("audit", tmp_path / "cohort", "--json", "--set", "covariate_auc=0.99").out)
    assert [one["column"] for one in stricter["covariates"] if one["warn"]] == []


def test_a_difference_between_sites_is_no_difference_between_classes():
    rng = np.random.default_rng(1)
    site = np.repeat(["A", "B"], 60)
    label = np.concatenate([rng.permutation([0] * 50 + [1] * 10), rng.permutation([0] * 10 + [1] * 50)])
    age = np.where(site == "A", 20.0, 60.0) + rng.normal(size=120)
    scans = [rng.normal(size=(50, 3)) for _ in site]
    cohort = Cohort.from_scans(scans, site=site, label=label, covariates=pd.DataFrame({"age": age}))
    (one,) = audit(cohort).covariates
    assert one.auc > 0.75
    assert abs(one.auc_inside - 0.5) < 0.12
    assert not one.warn
    one_class_each = np.where(label == 1, "A", "B")
    apart = Cohort.from_scans(scans, site=one_class_each, label=label, covariates=pd.DataFrame({"age": age}))
    (one,) = audit(apart).covariates  # site and class are one: nothing to stratify by
    assert (one.auc_inside, one.n_sites, one.warn) == (None, 0, True)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_covariate_that_separates_the_classes_either_way_is_a_warning(sign):
    rng, label = np.random.default_rng(2), [0, 1] * 30
    scans = [rng.normal(size=(50, 3)) for _ in label]
    covariates = pd.DataFrame({"dose": [sign * (1 + k) for k in label]})
    (one,) = audit(
        Cohort.from_scans(scans, site=["A", "B"] * 15 + ["B", "A"] * 15, label=label, covariates=covariates)
    ).covariates
    assert one.warn
    assert one.auc == pytest.approx(float(sign > 0))


def test_small_and_large_cohorts_do_not_cry_wolf():
    rng = np.random.default_rng(0)
    for n_sites, per_site in ((2, 10), (4, 30), (6, 100)):
        made, warned = make_people(n_sites, per_site, n_frames=2), 0
        for _ in range(20):
            table = made.participants.assign(a=rng.normal(size=len(made)), b=rng.normal(size=len(made)))
            covariates = findings.measure_covariates_by_label(dataclasses.replace(made, participants=table), 0.57)
            warned += any(one.warn for one in covariates)
        assert warned <= 3
    slight = make_people(10, 200, n_frames=2, a=lambda rng, label, site: rng.normal(size=len(label)) + 0.15 * label)
    (one,) = findings.measure_covariates_by_label(slight, 0.57)
    assert one.p_inside < 0.01  # significant, and too small to matter
    assert not one.warn


def test_the_stratified_tests_are_those_of_others():
    from statsmodels.stats.contingency_tables import StratifiedTable

    cohort = make_people(sex=lambda rng, label, site: np.where(rng.random(len(label)) < 0.4 + 0.15 * label, "M", "F"))
    (one,) = findings.measure_covariates_by_label(cohort, 0.57)
    tables = [pd.crosstab(own["label"], own["sex"]).to_numpy() for _, own in cohort.participants.groupby("site")]
    assert one.p_inside == pytest.approx(StratifiedTable(tables).test_null_odds(correction=False).pvalue)


def test_the_column_of_the_classes_is_no_covariate():
    sexes = make_people(sex=lambda rng, label, site: np.where(label == 1, "M", "F"))
    assert findings.measure_covariates_by_label(sexes, 0.57)[0].warn
    named = dataclasses.replace(sexes, classes=("female", "male"))
    assert findings.measure_covariates_by_label(named, 0.57) == ()


@pytest.mark.parametrize(
    ("classes", "shown"),
    [(("children with asthma", "ADHD"), "children with asthma mean"), (("0", "1"), "label 0 mean")],
)
def test_tables_name_the_classes(classes, shown):
    people = make_people(age=lambda rng, label, site: 20.0 + 10 * label + rng.normal(size=len(label)))
    assert shown in format_audit(audit(dataclasses.replace(people, classes=classes)))


def test_one_of_each_is_written_without_a_plural() -> None:
    series = scans()
    series[25] = series[24].copy()
    result = repr(audit(cohort(series)))
    assert "48 scans, 2 proposed exclusions, 1 pair of duplicates)" in result
