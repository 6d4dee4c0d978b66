"""Studies of scores: comparison, in-distribution, ablation, sensitivity, against plain computations from other runs."""

import csv
import json
import math
import statistics
from pathlib import Path

import pytest
from scipy import stats
from study_contexts import METHODS, PLAIN, SETTINGS, VARIANTS, context_on, read

from brio.connectome import BlockRule
from brio.protocol import make_folds
from brio.studies import make_arm
from brio.studies.comparison import make_setting_arms
from brio.studies.study import find_study

SCORES = ["auc", "acc", "balanced_acc", "brier", "validation_auc"]


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def by_unit(rows: list[dict[str, str]], method: str, metric: str, unit: list[str]) -> dict[tuple, float]:
    """Mean of each unit, in percent, by loops."""
    values: dict[tuple, list[float]] = {}
    for row in rows:
        if row["method"] == method:
            values.setdefault(tuple(row[u] for u in unit), []).append(100 * float(row[metric]))
    return {key: sum(v) / len(v) for key, v in values.items()}


def holm(p: list[float]) -> list[float]:
    order = sorted(range(len(p)), key=lambda i: p[i])
    out, worst = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, (len(p) - rank) * p[i])
        out[i] = min(1.0, worst)
    return out


# ---------------------------------------------------------------- comparison


@pytest.mark.parametrize(("study", "methods"), [("comparison", PLAIN), ("ablation", VARIANTS)])
def test_rows_are_those_of_an_ordinary_run_bit_for_bit(study, methods, table, paper):
    rows, others = table(study), read(paper / "loso" / "results.csv")
    for name in methods:
        mine = rows[rows["arm"] == name].reset_index(drop=True)
        theirs = others[others["method"] == name].reset_index(drop=True)
        assert len(mine) == 10
        for column in ["method", "fold", "seed", *SCORES]:
            assert mine[column].tolist() == theirs[column].tolist(), column


def test_in_distribution_corrects_for_training_sets_that_overlap(found, paper):
    summary = found("in-distribution").summary.set_index("arm")
    arms = paper / "out" / "arms" / "kfold"
    rows = {name: lines(arms / name / "results.csv") for name in METHODS}
    base = by_unit(rows["brio"], "brio", "auc", ["seed", "fold"])
    raw = {}
    for name in ("ridge", "gcn"):
        mine = by_unit(rows[name], name, "auc", ["seed", "fold"])
        d = [mine[key] - base[key] for key in base]
        sizes = [(float(r["n_test"]), float(r["n_source"])) for r in rows[name]]
        n_test, n_source = (statistics.mean(column) for column in zip(*sizes, strict=True))
        share = n_test / max(n_source - 2 * n_test, n_test)
        t = statistics.mean(d) / math.sqrt((1 / 4 + share) * statistics.variance(d))  # two seeds are no further folds
        raw[name] = 2 * stats.t.sf(abs(t), 3)
    expected = dict(zip(raw, holm(list(raw.values())), strict=True))
    assert summary.loc[list(raw), "p"].to_dict() == pytest.approx(expected)


# ---------------------------------------------------------------- ablation


def test_ablation_has_nine_arms_each_its_own_variant(cohort, tmp_path, table, found):
    order = {
        "brio": ("full", 4.0),
        "brio-wo-rs": ("w/o RS", 4.0),
        "brio-wo-tr": ("w/o TR", 4.0),
        "brio-wo-sm": ("w/o SM", 4.0),
        "brio-wo-sf": ("w/o SF", 4.0),
        "brio-wo-qg": ("w/o QG", 4.0),
        "backbone": ("w/o QG", 0.0),
        "brio-shuffled": ("full", 4.0),
        "backbone-shuffled": ("w/o QG", 0.0),
    }
    context = context_on(cohort, tmp_path)
    assert [a.name for a in find_study("ablation").list_arms(context)] == list(order)
    for name, (variant, strength) in order.items():
        settings = context.settings_of(name)
        assert (settings.variant, settings.lambda_env) == (variant, strength)
        assert settings.sites == ("shuffled" if "shuffled" in name else "own")
        assert (settings.epochs, settings.d_t) == (2, 4), "the settings given for all"
    kinds = found("ablation").summary.set_index("arm")["reported by"]
    ours = [name for name in order if name not in ("brio", "brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf")]
    assert kinds[kinds == "ours"].index.tolist() == ours
    mean = found("ablation").summary.set_index("arm")["AUC"]
    ahead = sum(mean["brio"] > mean[name] for name in ("brio-wo-rs", "brio-wo-sm"))
    assert found("ablation").text[0] == f"BRIO has a higher mean AUC than {ahead} of the paper's four ablations."


# ---------------------------------------------------------------- sensitivity


def test_sensitivity_varies_one_setting_and_keeps_the_width(table, paper):
    rows = table("sensitivity")
    values = {name: sorted(set(part["value"])) for name, part in rows.groupby("setting")}
    assert values == {"K": [2, 4], "J": [2, 4], "block": [0.5, 1.0]}
    assert len(rows) == 6 * 10
    base = _settings(paper, "brio")
    for name in set(rows["arm"]):
        mine = _settings(paper, name)
        assert mine["J"] * mine["d_t"] == 16
        changed = {key for key in mine if mine[key] != base[key]}
        assert changed in ({"K"}, {"J", "d_t"}, {"block_scale"}, set())
    for _, row in rows.drop_duplicates("arm").iterrows():
        if row["arm"] != "brio":
            key = {"K": "K", "J": "J", "block": "block_scale"}[row["setting"]]
            assert _settings(paper, row["arm"])[key] == row["value"]
    default = rows[rows["arm"] == "brio"].groupby("setting")["value"].unique()
    assert {key: v.tolist() for key, v in default.items()} == {"K": [2.0], "J": [4.0], "block": [1.0]}


def _settings(paper: Path, name: str) -> dict:
    plan = json.loads((paper / "out" / "arms" / "loso" / name / "plan.json").read_text())
    return plan["methods"]["brio"]["settings"]


def test_sensitivity_varies_what_the_paper_varies(cohort, tmp_path):
    groups = make_setting_arms(context_on(cohort, tmp_path))
    assert groups == {
        "K": {2: make_arm("brio")} | {k: make_arm("brio", K=k) for k in (4, 8, 16)},
        "J": {j: make_arm("brio", J=j, d_t=16 // j) if j != 4 else make_arm("brio") for j in (1, 2, 4, 8, 16)},
        "block": {
            0.5: make_arm("brio", block_scale=0.5),
            1.0: make_arm("brio"),
            2.0: make_arm("brio", block_scale=2.0),
        },
    }


def test_block_lengths_scale_the_unrounded_estimate(table, context):
    rows = table("sensitivity")
    block = rows[rows["setting"] == "block"]
    rule = BlockRule(subjects=12, signals=4, products=4)
    settings, connectomes = context.job.spec.protocol_settings, context.connectomes
    seen = set()
    for seed in (0, 1):
        for fold in make_folds(context.cohort, "loso", seed, settings):
            site, label = connectomes.cohort.sites[fold.source], connectomes.cohort.labels[fold.source]
            estimate = connectomes.estimate_block_length(fold.source, site, label, rule, seed)
            seen.add(estimate)
            here = block[(block["fold"] == fold.name) & (block["seed"] == seed)].set_index("value")["block_length"]
            assert here.to_dict() == {0.5: 0.5 * estimate, 1.0: estimate}
    assert any(estimate != round(estimate) for estimate in seen), "else rounding first would not be seen"


def test_fewer_values_are_varied_where_the_width_does_not_divide(cohort, tmp_path):
    # a default off the grid is on it all the same, and J that do not divide the width are left out
    context = context_on(
        cohort, tmp_path / "out", settings={**SETTINGS, "K": "3", "J": "6", "d_t": "4", "block_scale": "1.5"}
    )
    groups = make_setting_arms(context)
    assert {name: list(along) for name, along in groups.items()} == {
        "K": [2, 3, 4, 8, 16],
        "J": [1, 2, 4, 6, 8],
        "block": [0.5, 1.0, 1.5, 2.0],
    }
    assert groups["K"][3] == groups["J"][6] == groups["block"][1.5] == make_arm("brio")
    assert groups["J"][8] == make_arm("brio", J=8, d_t=3)
    assert groups["block"][1.0] == make_arm("brio", block_scale=1.0)
    assert len(find_study("sensitivity").list_arms(context)) == 1 + 4 + 4 + 3
