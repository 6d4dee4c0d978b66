"""Studies on ordinary cohorts: what they say is computed anew from the predictions that they stored."""

import functools
import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from checks import close, fisher_z, half_interval, new_folder, numbers, read, succeed
from cohorts import BUILDERS, People, build
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, roc_auc_score

soak = pytest.mark.soak

STUDY = ("--method", "ridge", "--seeds", "3", "--quiet", "--device", "cpu", "--keep-all")


def read_study(name: str, cohort: str, *words: object) -> tuple[pd.DataFrame, str, Path]:
    """Make a study; return its table, its text and its folder."""
    out = new_folder()
    succeed("study", name, build(cohort), *STUDY, *words, "--out", out)
    folder = out / "studies" / name
    return read(next(folder.glob("*.csv"))), next(folder.glob("*.md")).read_text(), out


@soak
def test_a_comparison_finds_the_planted_difference():
    table, text, out = read_study("comparison", "9 sites", "--method", "covariates-only")
    auc = table.groupby(["arm", "fold"])["auc"].mean().groupby("arm").mean()
    assert f"highest mean AUC: {100 * auc.max():.1f} %" in text
    assert auc.idxmax() == "ridge"
    assert "covariates-only" in text
    succeed("report", out)
    assert f"{100 * auc.max():.1f}" in (out / "report.html").read_text()


@soak
def test_the_permutation_test_tells_truth_from_chance():
    for cohort, lowest in (("9 sites", 0.0), ("chance", 0.02)):
        _, text, _ = read_study("permutation", cohort, "--seeds", "1")
        p = [line.split("(p ")[1] for line in text.splitlines() if "(p " in line]
        values = [numbers(line)[0] for line in p]
        assert len(values) == 2
        assert all(value <= 0.001 for value in values) if lowest == 0 else all(value > lowest for value in values)


@soak
def test_a_learning_curve_has_each_point_once_and_no_area_beyond_all_pairs():
    _, text, _ = read_study("learning-curve", "9 sites")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ridge")]
    points = [(row[1], row[3] if "participants" in row[1] else row[2]) for row in rows]
    assert len(points) == len(set(points)) >= 5
    for row in rows:
        low, high = (float(word) for word in row[5].split(" to "))
        assert 0 <= low <= float(row[4]) <= high <= 100


@soak
def test_calibration_says_where_a_slope_cannot_be_estimated():
    table, text, _ = read_study("calibration", "9 sites")
    known = table.groupby("fold")["slope"].mean().notna().sum()
    assert known < 9
    assert f"mean over {known} site{'s' if known > 1 else ''} " in text
    assert f"It cannot be estimated at {9 - known} of 9 sites" in text


@soak
def test_subgroups_count_the_participants_of_the_table():
    table, _, _ = read_study("subgroups", "confounded")
    people = BUILDERS["confounded"]().table
    sex = table[table["variable"] == "sex"].set_index("subgroup")
    for word, letter in (("female", "F"), ("male", "M")):
        own = people[people["sex"] == letter]
        assert sex.loc[word, "patients"].max() == own["label"].sum()
        assert sex.loc[word, "controls"].max() == (1 - own["label"]).sum()


SMALL = {"epochs": 2, "K": 2, "T_w": 1, "M": 4, "J": 4, "d_t": 4, "d_h": 8, "d_e": 4, "d_mlp": 8}
SMALL |= {"sinkhorn_iterations": 5, "assignment_iterations": 30, "block_subjects": 12, "block_signals": 4}
SMALL |= {"block_products": 4, "protocol.n_folds": 5}


@functools.cache
def make_studies(name: str, cohort: str, *methods: str, seeds: int = 1) -> Path:
    """Make a study, or all of the paper's, with small networks, once per session; return its folder."""
    out = new_folder()
    settings = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    words = [word for method in methods for word in ("--method", method)]
    words += ["--seeds", str(seeds), "--quiet", "--device", "cpu", "--keep-all"]
    succeed("study", name, build(cohort), *words, *settings, "--out", out)
    return out


def score(out: Path, arm: str, protocol: str = "loso") -> pd.DataFrame:
    """AUC and accuracy of every run of an arm, from its predictions; no AUC of one class."""
    rows = []
    for (fold, seed), own in read(out / "arms" / protocol / arm / "predictions.csv").groupby(["fold", "seed"]):
        auc = roc_auc_score(own["label"], own["logit"]) if own["label"].nunique() == 2 else np.nan
        rows.append({"fold": fold, "seed": seed, "auc": auc, "acc": accuracy_score(own["label"], own["logit"] > 0)})
    return pd.DataFrame(rows).set_index(["fold", "seed"]).sort_index()


def check_arms(out: Path, table: pd.DataFrame, text: str, people: People) -> None:
    """Scores of all runs; mean, SD and interval of every arm; the best one is named where arms are ranked."""
    means = {}
    for (arm, protocol), own in table.drop_duplicates(["arm", "fold", "seed"]).groupby(["arm", "protocol"]):
        scores = score(out, arm, protocol)
        found = own.set_index(["fold", "seed"]).sort_index()
        assert list(found.index) == list(scores.index)
        close(found[["auc", "acc"]], scores)
        by = ["fold"] if protocol == "loso" else ["fold", "seed"]
        auc, acc = (100 * scores.groupby(by)[name].mean().dropna() for name in ("auc", "acc"))
        runs = read(out / "arms" / protocol / arm / "results.csv")
        half = half_interval(auc, runs, protocol)
        low, high = np.clip([auc.mean() - half, auc.mean() + half], 0, 100)
        means[arm] = auc.mean()
        interval = f"{low:.1f} to {high:.1f}" if half == half else "-"  # of scores that do not vary
        cells = f"{interval} | {acc.mean():.1f} | {acc.std():.1f} |"
        line = next((line for line in text.splitlines() if cells in line), "")
        assert f"| {auc.mean():.1f} | {auc.std():.1f} |" in line, (arm, cells)
    if "has the highest mean AUC" in text:
        best = max(means, key=means.get)
        assert f"{best if best != 'brio' else 'BRIO'} has the highest mean AUC: {means[best]:.1f} %" in text


def check_agreement(out: Path, table: pd.DataFrame, text: str, people: People) -> None:
    """Spearman's rho and discordant pairs; the arms that are lowest."""
    assert (table[["D_site", "D_re_pred"]] > 0).all(axis=None)
    rho = stats.spearmanr(table["D_site"], table["D_re_pred"]).statistic
    assert f"over {len(table)} runs is {rho:.2f} (" in text
    pairs = [
        (a["D_site"] - b["D_site"]) * (a["D_re_pred"] - b["D_re_pred"]) < 0
        for _, own in table.groupby(["fold", "seed"])
        for a, b in itertools.combinations(own.to_dict("records"), 2)
    ]
    assert f"in the same fold and seed): {100 * np.mean(pairs):.0f} % (" in text
    means = table.groupby("arm")[["D_site", "D_re_pred"]].mean().rename(index={"brio": "BRIO"}).idxmin()
    assert f"D_site is lowest for {means['D_site']}. Predictive variation is lowest for {means['D_re_pred']}." in text
    check_known_auc(out, table)


def check_known_auc(out: Path, table: pd.DataFrame) -> None:
    """Every AUC of a table is that of the predictions of its arm."""
    for arm, own in table.groupby("arm"):
        close(own.set_index(["fold", "seed"])["auc"].sort_index(), score(out, arm)["auc"])


def check_alignment(out: Path, table: pd.DataFrame, text: str, people: People) -> None:
    """The matched run of a fold has the best validation AUC; the means that the text names."""
    matched = table["arm"] == "matched w/o QG"
    check_known_auc(out, table[~matched])
    aligned = table[~matched & (table["lambda_env"] > 0)]
    for (fold, seed), own in aligned.groupby(["fold", "seed"]):
        best = own.sort_values("lambda_env").iloc[own.sort_values("lambda_env")["validation_auc"].argmax()]
        found = table[matched & (table["fold"] == fold) & (table["seed"] == seed)]
        assert found["lambda_env"].tolist() == [best["lambda_env"]]
    for arm, name in (("brio", "BRIO"), ("matched w/o QG", "Matched w/o QG")):
        own = table[table["arm"] == arm]
        site, variation, auc = own["D_site"].mean(), own["D_re_pred"].mean(), 100 * own["auc"].mean()
        words = f"a D_site of {site:.3g}, a predictive variation of {variation:.3g} and an AUC of {auc:.1f} %."
        assert f"{name} has {words}" in text


def check_mismatch(out: Path, table: pd.DataFrame, text: str, people: People) -> None:
    """Runs below the median discrepancy and above the median variation."""
    low, high = table["D_site"] < table["D_site"].median(), table["D_re_pred"] > table["D_re_pred"].median()
    assert (table["mismatch"] == (low & high)).all()
    reference = table[table["arm"] == "backbone"].set_index(["fold", "seed"])["validation_auc"]
    least = reference.loc[list(zip(table["fold"], table["seed"], strict=True))].to_numpy() - 0.01
    assert (table["auc_preserved_mismatch"] == (low & high & (table["validation_auc"] >= least - 1e-9))).all()
    rates = 100 * table.groupby("arm")["mismatch"].mean()
    others = rates.drop("brio")
    assert f"Mismatches are {rates['brio']:.0f} % of the runs of BRIO, and {others.mean():.0f} % of the runs" in text
    check_known_auc(out, table)


def check_retention(out: Path, table: pd.DataFrame, text: str, people: People) -> None:
    """All factors together are the model; fewer have an AUC too, and the best ranking is named."""
    expected = score(out, "brio")["auc"].dropna()
    for _, own in table[table["share"] == 100].groupby("ranking"):
        close(own.set_index(["fold", "seed"])["auc"].dropna().sort_index(), expected, 1e-6)
    means = table.groupby(["share", "ranking", "fold"])["auc"].mean().groupby(["share", "ranking"]).mean()
    assert means.between(0, 1).all()
    for share in (25.0, 50.0, 75.0):
        best = float(means[share].max())
        named = text.split(f"With {share:g} % of the factors, ranking by ")[1].split()[0]
        close(means[share, named], best, 1e-12)
    assert f"With all factors, AUC is {100 * expected.groupby('fold').mean().mean():.1f} % under every ranking." in text


def check_scan_length(out: Path, table: pd.DataFrame, text: str, people: People) -> None:
    """Ridge regression with the penalties of its runs, on the frames of each window."""
    check_known_auc(out, table[table["share"] == 100])
    records = [json.loads(path.read_text()) for path in (out / "arms" / "loso" / "ridge").glob("runs/*/run.json")]
    sites, label, ids = (people.table[name].to_numpy() for name in ("site", "label", "participant_id"))
    full = fisher_z(people)
    for share, window in itertools.product((0.75, 0.5), ("first", "middle", "last")):
        cut = []
        for scan in people.scans:
            n = int(np.floor(share * len(scan) + 0.5))
            start = {"first": 0, "middle": (len(scan) - n) // 2, "last": len(scan) - n}[window]
            cut.append(scan[start : start + n])
        X = fisher_z(People(cut, people.table, people.atlas))
        for record in records:
            row, source = record["row"], np.isin(sites, record["source_sites"])
            here = sites == row["fold"]
            model = Ridge(alpha=record["details"]["penalty"]).fit(full[source], 2.0 * label[source] - 1)
            margins = pd.DataFrame({"label": label[here], "margin": model.predict(X[here])}).groupby(ids[here]).mean()
            own = table.query("arm == 'ridge' and share == @share * 100 and window == @window")
            found = own[(own["fold"] == row["fold"]) & (own["seed"] == row["seed"])]["auc"].item()
            if margins["label"].nunique() == 2:
                close(found, roc_auc_score(margins["label"], margins["margin"]))
    shorter = table[table["share"] < 100].groupby(["share", "arm", "fold"])["change"].mean()
    for share in (75, 50):
        change = 100 * shorter[share].groupby("arm").mean()["ridge"]
        assert f"with {share} % of the frames, in points: ridge {change:+.1f}".replace("+0.0", "0.0") in text


def check_efficiency(out: Path, table: pd.DataFrame, text: str, people: People) -> None:
    """Networks alone, each with a positive time; the fastest is named."""
    assert table["arm"].tolist() == ["gcn", "brio", "brio, half of the scans"]
    assert (table["seconds_an_epoch"] > 0).all()
    fastest = table.loc[table["seconds_an_epoch"].idxmin()]
    name = fastest["arm"].replace("brio", "BRIO")
    assert f"{name} is the fastest: {fastest['seconds_an_epoch']:.3g} seconds per epoch." in text
    assert table["source_scans"].iloc[2] * 2 >= table["source_scans"].iloc[1]


def check_regions(out: Path, table: pd.DataFrame, text: str, people: People) -> None:
    """Scores are shares of all regions."""
    assert table["roi"].tolist() == people.atlas.rois["name"].tolist()
    close(table["S_hat"].sum(), 1, 1e-5)
    close(table["times_1_over_P"], len(table) * table["S_hat"], 1e-9)
    top = table.sort_values("S_hat", ascending=False)
    assert f"Highest mean scores: {', '.join(top['roi'][:5])}." in text
    assert f"The highest score is {top['times_1_over_P'].iloc[0]:.2f} times 1/P" in text


def check_propositions(out: Path, table: pd.DataFrame, text: str, people: People) -> None:
    """Theorems hold in every run."""
    first, second = (table[table["proposition"] == k] for k in (1, 2))
    assert (first["change"] <= first["bound"] * (1 + 1e-5) + 1e-9).all()
    assert table["holds"].astype(bool).all()
    close(first["change"], (first["Delta"] - first["Delta_re"]).abs(), 1e-5)
    assert first.loc[first["sign_condition"].astype(bool), "sign_kept"].astype(bool).all()
    assert (second["gain"] >= -1e-6).all()
    assert f"holds for {len(first)} of {len(first)} combinations of site and factor" in text
    assert f"by {second['gain'].mean():.3g} on average" in text


CHECKS = {"comparison": check_arms, "in-distribution": check_arms, "ablation": check_arms, "sensitivity": check_arms}
CHECKS |= {"agreement": check_agreement, "alignment": check_alignment, "mismatch": check_mismatch}
CHECKS |= {"retention": check_retention, "scan-length": check_scan_length, "efficiency": check_efficiency}
CHECKS |= {"regions": check_regions, "propositions": check_propositions}


def check_study(out: Path, name: str, cohort: str) -> None:
    """Apply the check of a study to the files that it wrote."""
    folder = out / "studies" / name
    text = (folder / "finding.md").read_text()
    assert "nan" not in text.lower().split()
    assert "  " not in text
    assert "\nno " not in text, "sentences begin with a capital letter"
    assert (folder / "figure.png").stat().st_size > 0
    CHECKS[name](out, read(folder / "table.csv"), text, BUILDERS[cohort]())


@soak
@pytest.mark.parametrize("study", CHECKS)
@pytest.mark.parametrize("cohort", ["5 sites", "two sessions", "one-class site", "named", "3 sites"])
def test_a_study_of_the_paper_says_what_its_runs_hold(cohort, study):
    check_study(make_studies("paper", cohort, "ridge", "gcn", "brio"), study, cohort)


@pytest.mark.parametrize("study", ["in-distribution", "scan-length"])
def test_a_study_of_linear_models_says_what_its_runs_hold(study, undrawn):
    check_study(make_studies(study, "5 sites", "ridge", "covariates-only"), study, "5 sites")


@soak
@pytest.mark.parametrize("cohort", ["5 sites", "one-class site"])
def test_the_report_of_all_studies_shows_each_and_names_the_best_method(cohort):
    out = make_studies("paper", cohort, "ridge", "gcn", "brio")
    succeed("report", out)
    page = (out / "report.html").read_text()
    for name in CHECKS:
        assert json.loads((out / "studies" / name / "study.json").read_text())["title"] in page
    means = {arm: 100 * score(out, arm)["auc"].groupby("fold").mean().mean() for arm in ("ridge", "gcn", "brio")}
    assert max(means, key=means.get) == "ridge"
    assert f"{means['ridge']:.1f}" in page
    assert "ridge" in page.split("<h2")[0], "the verdict names the best method"


@soak
@pytest.mark.parametrize("cohort", ["9 sites", "chance"])
def test_net_benefit_is_that_of_the_predictions(cohort):
    table, text, out = read_study("decision-curve", cohort)
    gains = []
    for threshold in (0.2, 0.5, 0.8):
        by_site = {"net_benefit": [], "treat_all": []}
        for _, own in read(out / "arms" / "loso" / "ridge" / "predictions.csv").groupby(["fold", "seed"]):
            label, odds = own["label"].to_numpy(), threshold / (1 - threshold)
            for name, treated in (("net_benefit", own["probability"] >= threshold), ("treat_all", label >= 0)):
                right, wrong = (label[treated] == 1).sum(), (label[treated] == 0).sum()
                by_site[name].append((right - wrong * odds) / len(label))
        own = table[table["threshold"] == threshold]
        for name, values in by_site.items():
            close(own[name].mean(), np.mean(values), 1e-5)
        gains.append(np.mean(by_site["net_benefit"]) - max(0, np.mean(by_site["treat_all"])))
    assert ("at no threshold is the net benefit above" in text) == (cohort == "chance")
    assert (gains[1] > 0.2) == (cohort == "9 sites")


@soak
def test_adaptation_scores_the_scans_that_are_left():
    table, text, out = read_study("adaptation", "large sites")
    predictions = read(next((out / "arms" / "loso").iterdir()) / "predictions.csv")
    before = predictions.assign(error=(predictions["probability"] - predictions["label"]) ** 2)
    before = before.groupby(["fold", "seed"])["error"].mean()
    none = table[table["size"] == 0].set_index(["fold", "seed"])
    close(none["brier"].sort_index(), before.sort_index(), 1e-5)
    assert f"without adaptation the Brier score is {before.groupby('fold').mean().mean():.3f}" in text
    sizes = predictions.groupby("fold")["participant_id"].nunique()
    for size in (10, 20):
        assert set(table.loc[table["size"] == size, "fold"]) == set(sizes.index[sizes >= size + 10])
    scores = table[table["size"] > 0].filter(regex="^(brier|accuracy)")
    assert len(scores)
    assert ((scores >= 0) & (scores <= 1)).all(axis=None)


@soak
def test_retest_gives_the_icc_of_the_margins():
    """ICC(1) of two sessions from the mean squares between and within participants, site by site."""
    _, text, out = read_study("retest", "two sessions")
    people = BUILDERS["two sessions"]()
    assert f"{people.table['participant_id'].nunique()} participants with {len(people.table)} scans" in text
    records = [json.loads(path.read_text()) for path in (out / "arms" / "loso" / "ridge").glob("runs/*/run.json")]
    X, label, site = fisher_z(people), people.table["label"].to_numpy(), people.table["site"].to_numpy()
    iccs = []
    for seed in range(3):
        margins = np.full(len(label), np.nan)
        for record in (record for record in records if record["row"]["seed"] == seed):
            source, here = np.isin(site, record["source_sites"]), site == record["row"]["fold"]
            model = Ridge(alpha=record["details"]["penalty"]).fit(X[source], 2.0 * label[source] - 1)
            margins[here] = model.predict(X[here])
        pairs = pd.DataFrame({"id": people.table["participant_id"], "site": site, "margin": margins})
        means = pairs.groupby(["site", "id"])["margin"].mean()
        within = pairs.groupby("id")["margin"].var(ddof=1).mean()
        spread = (means - means.groupby("site").transform("mean")) ** 2
        between = 2 * spread.sum() / (len(means) - means.index.get_level_values("site").nunique())
        iccs.append((between - within) / (between + within))
    table = read(out / "studies" / "retest" / "table.csv").sort_values("seed")
    close(table["icc"], iccs, 1e-4)
