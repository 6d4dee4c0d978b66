"""What the studies of the paper say, computed anew from the predictions that they stored."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
from checks import close, fill_dead, fisher_z, fit_ridges, half_interval, read
from cohorts import People
from scipy import stats
from sklearn.metrics import accuracy_score, roc_auc_score


def score(out: Path, arm: str, protocol: str = "loso") -> pd.DataFrame:
    """AUC and accuracy of every run of an arm, from its predictions; no AUC of one class."""
    rows = []
    for (fold, seed), own in read(out / "arms" / protocol / arm / "predictions.csv").groupby(["fold", "seed"]):
        auc = roc_auc_score(own["label"], own["margin"]) if own["label"].nunique() == 2 else np.nan
        rows.append({"fold": fold, "seed": seed, "auc": auc, "acc": accuracy_score(own["label"], own["margin"] > 0)})
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
        interval = "unknown: too wide" if high - low >= 100 else interval
        cells = f"{interval} | {acc.mean():.1f} | {acc.std():.1f} |"
        line = next((line for line in text.splitlines() if cells in line), "")
        assert f"| {auc.mean():.1f} | {auc.std():.1f} |" in line, (arm, cells)
    if "has the highest mean AUC" in text:
        best = max(means, key=means.get)
        assert f"{best if best != 'brio' else 'BRIO'} has the highest mean AUC: {means[best]:.1f}%" in text


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
    rate = next(line for line in text.split("\n") if "% (" in line and "pairs of methods in the same fold" in line)
    assert f"{100 * np.mean(pairs):.0f}% (" in rate
    means = table.groupby("arm")[["D_site", "D_re_pred"]].mean().rename(index={"brio": "BRIO"}).idxmin()
    assert f"Mean D_site is lowest for {means['D_site']}." in text
    assert f"Mean predictive variation is lowest for {means['D_re_pred']}." in text
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
        words = f"mean D_site {site:.3g}, mean predictive variation {variation:.3g}, mean AUC {auc:.1f}%."
        assert f"{name}: {words}" in text


def check_mismatch(out: Path, table: pd.DataFrame, text: str, people: People) -> None:
    """Runs below the median discrepancy and above the median variation."""
    low, high = table["D_site"] < table["D_site"].median(), table["D_re_pred"] > table["D_re_pred"].median()
    assert (table["mismatch"] == (low & high)).all()
    reference = table[table["arm"] == "backbone"].set_index(["fold", "seed"])["validation_auc"]
    least = reference.loc[list(zip(table["fold"], table["seed"], strict=True))].to_numpy() - 0.01
    assert (table["auc_preserved_mismatch"] == (low & high & (table["validation_auc"] >= least - 1e-9))).all()
    rates = 100 * table.groupby("arm")["mismatch"].mean()
    others = rates.drop("brio")
    assert f"{rates['brio']:.0f}% of the runs of BRIO are mismatches, compared with {others.mean():.0f}% of" in text
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
        named = text.split(f"With {share:g}% of the factors, the mean AUC is highest for")[1].split("'")[1]
        close(means[share, named], best, 1e-12)
    with_all = 100 * expected.groupby("fold").mean().mean()
    assert f"With all factors, the mean AUC is {with_all:.1f}% for every ranking." in text


def check_scan_length(out: Path, table: pd.DataFrame, text: str, people: People) -> None:
    """Ridge regression with the penalties of its runs, on the frames of each window."""
    check_known_auc(out, table[table["share"] == 100])
    sites, label, ids = (people.table[name].to_numpy() for name in ("site", "label", "participant_id"))
    full = fisher_z(people)
    runs = list(fit_ridges(out / "arms" / "loso" / "ridge", people, full))
    for share, window in itertools.product((0.75, 0.5), ("first", "middle", "last")):
        cut = []
        for scan in people.scans:
            n = int(np.floor(share * len(scan) + 0.5))
            start = {"first": 0, "middle": (len(scan) - n) // 2, "last": len(scan) - n}[window]
            cut.append(scan[start : start + n])
        X = fisher_z(People(cut, people.table, people.atlas))
        for row, source, here, model in runs:
            part = fill_dead(X, full, sites, np.unique(sites[source]))
            margins = pd.DataFrame({"label": label[here], "margin": model.predict(part[here])})
            margins = margins.groupby(ids[here]).mean()
            own = table.query("arm == 'ridge' and share == @share * 100 and window == @window")
            found = own[(own["fold"] == row["fold"]) & (own["seed"] == row["seed"])]["auc"].item()
            if margins["label"].nunique() == 2:
                close(found, roc_auc_score(margins["label"], margins["margin"]))
    shorter = table[table["share"] < 100].groupby(["share", "arm", "fold"])["change"].mean()
    for share in (75, 50):
        change = 100 * shorter[share].groupby("arm").mean()["ridge"]
        assert f"with {share}% of the frames, in points: ridge {change:+.1f}".replace("+0.0", "0.0") in text


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
    assert f"Regions with the highest mean scores: {', '.join(top['roi'][:5])}." in text
    assert f"The highest score is {top['times_1_over_P'].iloc[0]:.2f} times 1/P" in text


def check_propositions(out: Path, table: pd.DataFrame, text: str, people: People) -> None:
    """Theorems hold in every run."""
    first, second = (table[table["proposition"] == k] for k in (1, 2))
    assert (first["change"] <= first["bound"] * (1 + 1e-5) + 1e-9).all()
    assert table["holds"].astype(bool).all()
    close(first["change"], (first["Delta"] - first["Delta_re"]).abs(), 1e-5)
    assert first.loc[first["sign_condition"].astype(bool), "sign_kept"].astype(bool).all()
    assert (second["gain"] >= -1e-6).all()
    assert f"holds for {len(first)} of {len(first)} combinations of run, site and factor" in text
    assert f"by {second['gain'].mean():.3g} on average" in text


CHECKS = {"comparison": check_arms, "in-distribution": check_arms, "ablation": check_arms, "sensitivity": check_arms}
CHECKS |= {"agreement": check_agreement, "alignment": check_alignment, "mismatch": check_mismatch}
CHECKS |= {"retention": check_retention, "scan-length": check_scan_length, "efficiency": check_efficiency}
CHECKS |= {"regions": check_regions, "propositions": check_propositions}


def check_study(out: Path, name: str, people: People) -> None:
    """Apply the check of a study to the files that it wrote."""
    folder = out / "studies" / name
    text = (folder / "finding.md").read_text()
    assert "nan" not in text.lower().split()
    assert "  " not in text
    assert "\nno " not in text, "sentences begin with a capital letter"
    assert (folder / "figure.png").stat().st_size > 0
    CHECKS[name](out, read(folder / "table.csv"), text, people)
