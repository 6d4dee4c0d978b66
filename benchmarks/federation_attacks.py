"""What do the answers of a site give away of its participants? ``python benchmarks/federation_attacks.py COHORT``

Half of the participants of each site and class answer the requests of ``brio.federation``, the other half are
outsiders; then the halves change places. The attacker holds a scan and its label, has read all requests, and has the
scans of all outsiders of other sites and of half of the outsiders of this one; he is tried on the others.

- membership: did this scan go into a vector? A vector is a sum of scans with weights that the attacker can compute for
  the scan that he holds; he multiplies this weight by the inner product of scan and vector, whitened by outsiders.
  Together: logistic regression of these products and the share of a scan in their span, fitted to the other sites.
- label: the whitened inner product alone, as a guess of the label of a member or an outsider.
- reconstruction: no combination of vectors correlates more with a scan than its projection on their span.

Beside them: the same attacks on sums over all sites, on coefficients of pooled scans, and on X'X of a site.

``--projects`` tries several projects of the same scans instead: the connectome of a participant from the difference of
answers, properties and pairs of regions that few participants have, and sites that collude.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import zscore
from sklearn.linear_model import LogisticRegression

from brio import Cohort, draws, federation
from brio.cohort import audit
from brio.connectome import read_edges
from brio.errors import BrioError
from brio.federation.equations import multiply_vector
from brio.federation.messages import FEWEST, Arrays
from brio.federation.progress import Progress
from brio.federation.site import Site
from brio.protocol import auc
from brio.protocol.folds import assign_stratified_folds

Project = tuple[dict[str, list[Arrays]], list[Arrays], Progress]  # answers of sites to all requests but one, sums
Vectors = dict[str, tuple[np.ndarray, np.ndarray]]  # a vector [d], and for each scan its weight in it [n]
STEPS = ("labels", "models", "product 1", "direction 1", "product 2")
SUMS = tuple(f"sum of {name}" for name in STEPS)
POOLED = "coefficients of pooled scans"
SPANS = {"span of round 2": STEPS[:2], "span of all": (*STEPS, "covariance")}
TOGETHER = {
    "round 1 together": ("features", "fc_means"),
    "round 2 together": (*STEPS[:2], "span of round 2"),
    "all rounds together": ("features", "fc_means", *STEPS, "covariance", "span of all"),
    "all sums together": (*SUMS, "span of sums"),
}


def run_rounds(terms: federation.Terms, sites: dict[str, Site]) -> Project:
    """Ask all sites everything but the last request, whose vector follows from the model."""
    answers: dict[str, list[Arrays]] = {name: [] for name in sites}
    sums: list[Arrays] = []
    for asked in terms.rounds[:-1]:
        for name, site in sites.items():
            answers[name].append(getattr(site, asked)(*[Progress(terms, sums)] if sums else ()))
        newest = [own[-1] for own in answers.values()]
        sums.append({key: np.sum([one[key] for one in newest], axis=0) for key in newest[0]})
    return answers, sums, Progress(terms, sums)


class Part:
    """The participants of a site: who answered, whose scans the attacker has, and features and labels around means."""

    def __init__(self, site: Site, progress: Progress, dealt: np.ndarray, half: int) -> None:
        x, y, live = site.read(progress), 2.0 * site.label - 1, site.live
        fc = read_edges(site.connectomes.full).double().cpu().numpy()
        self.inside, held = dealt // 2 == half, dealt == 2 * (1 - half)
        self.tried = ~held
        self.x, self.b = x - x[self.inside].mean(0), y - y[self.inside].mean()  # the site sends these means
        self.x_held, self.fc_held = x - x[held].mean(0), fc - fc[held].mean(0)
        self.ruled_out = (~live[~self.inside] & live[self.inside].all(0)).any(1)  # no signal where all members have it


def make_whitener(x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Make the product of vectors with the inverse covariance of scans, to which their mean variance is added."""
    gram = x @ x.T
    inverse = np.linalg.inv(gram + np.trace(gram) / x.shape[1] * np.eye(len(x)))
    return lambda v: v - (v @ x.T @ inverse) @ x


def list_vectors(own: list[Arrays], sums: list[Arrays], progress: Progress, x: np.ndarray, b: np.ndarray) -> Vectors:
    """List the vectors of rounds 2 to 5, and the weights in them of scans x [n, d] with centred labels b [n].

    What all sites have in common in a direction is taken off.
    """
    g, share = Progress(progress.terms, sums[:3]).point.residual, own[0]["n"].sum() / progress.n_all
    step = g - progress.penalty / share * own[3]["direction"]
    first, second = ((own[2 * i]["product"], x @ progress.directions[i - 1]) for i in (1, 2))
    return dict(zip(STEPS, ((own[1]["labels"], b), (own[1]["models"], b), first, (step, x @ g), second), strict=True))


def score_scans(vectors: Vectors, x: np.ndarray, whiten: Callable, spans: dict[str, Sequence[str]]) -> Arrays:
    """Score scans for having gone into vectors, by each and by the share of a scan in the span of several."""
    V = {name: v / np.linalg.norm(v) for name, (v, _) in vectors.items()}
    W = {name: whiten(v[None])[0] for name, v in V.items()}
    scores = {name: weight * (x @ W[name]) for name, (_, weight) in vectors.items()}
    for title, names in spans.items():
        v, w = (np.array([of[name] for name in names]) for of in (V, W))
        inside = ((x @ w.T) @ np.linalg.pinv(w @ v.T, rcond=1e-10) * (x @ w.T)).sum(1)
        scores[title] = inside / (whiten(x) * x).sum(1)
    return scores


def project_scans(V: np.ndarray, x: np.ndarray) -> tuple[int, int, np.ndarray, np.ndarray]:
    """Number and rank of vectors [k, d]; correlations of scans [n, d] with their span and with one."""
    V, x = (v / np.linalg.norm(v, axis=1)[:, None] for v in (V, x))
    _, size, basis = np.linalg.svd(V, full_matrices=False)
    basis = basis[size > 1e-8 * size[0]]
    return len(V), len(basis), np.linalg.norm(x @ basis.T, axis=1), np.abs(x @ V.T).max(1)


def attack_half(terms: federation.Terms, whole: dict[str, Site], dealt: Arrays, half: int) -> list[dict[str, Any]]:
    """Let a half of the participants of each site answer, and attack each site."""
    members = {e: Site(terms, one.cohort.select(dealt[e] // 2 == half), 2) for e, one in whole.items()}
    answers, all_sums, progress = run_rounds(terms, members)
    without = {e: run_rounds(terms, {k: one for k, one in members.items() if k != e}) for e in members}
    parts = {e: Part(one, progress, dealt[e], half) for e, one in whole.items()}
    A_all, b_all = (np.concatenate([getattr(one, key)[one.inside] for one in parts.values()]) for key in ("x", "b"))
    penalty, w, found = progress.penalty, progress.point.w, []
    pooled = A_all.T @ np.linalg.solve(A_all @ A_all.T + penalty * np.eye(len(A_all)), b_all)
    for e, part in parts.items():
        own, others = answers[e], [one for k, one in parts.items() if k != e]
        A, b, inside = part.x[part.inside], part.b[part.inside], part.inside[part.tried]
        x, x_held, fc_held, b_tried = (v[part.tried] for v in (part.x, part.x_held, part.fc_held, part.b))
        whiten = make_whitener(np.concatenate([one.x_held[~one.inside] for one in others]))
        whiten_fc = make_whitener(np.concatenate([one.fc_held[~one.inside] for one in others]))
        vectors = list_vectors(own, all_sums, progress, x, b_tried)
        vectors["covariance"] = multiply_vector(A, w), x @ w  # less its mean, which follows from those of round 1
        sums = list_vectors(all_sums, all_sums, progress, x_held, b_tried)
        sums = dict(zip(SUMS, sums.values(), strict=True)) | {POOLED: (pooled, b_tried)}
        means = [(v[part.inside].mean(0), np.ones(len(x))) for v in (part.x_held, part.fc_held)]
        scores = score_scans({"features": means[0]}, x_held, whiten, {})
        scores |= score_scans({"fc_means": means[1]}, fc_held, whiten_fc, {}) | score_scans(vectors, x, whiten, SPANS)
        scores |= score_scans(sums, x_held, whiten, {"span of sums": SUMS})
        labels = {}
        for key in (*STEPS[:2], *SUMS[:2], POOLED):
            guess = (x if key in STEPS else x_held) @ whiten({**vectors, **sums}[key][0][None])[0]
            labels[key] = [auc(b_tried[who] > 0, guess[who]) for who in (inside, ~inside)]
        rounds = chain(own, *(one[0][e] for k, one in without.items() if k != e))  # once more for each other site
        strands = [one[key] for one in rounds for key in ("labels", "models", "product", "direction") if key in one]
        spans = {"all rounds": [v for v, _ in vectors.values()], "leave one site out, all rounds": strands, "X'X": A}
        differences = {}
        for k, key in ((0, "features"), (0, "fc_means"), (1, "labels"), (1, "models"), (2, "product")):
            error = all_sums[k][key] - without[e][1][k][key] - own[k][key]
            differences[key] = np.linalg.norm(error) / np.linalg.norm(own[k][key])
        found.append(
            {"n": len(A), "d": len(w), "inside": inside, "scores": scores, "labels": labels, "differences": differences}
            | {"spans": {key: project_scans(np.array(V), x) for key, V in spans.items()}, "ruled_out": part.ruled_out}
            | {"solved": np.abs(np.linalg.lstsq(A.T, own[1]["labels"])[0] - b).max()}
        )
    return found


def combine_scores(sites: list[dict[str, Any]], names: Sequence[str]) -> list[float]:
    """AUC at each site of a logistic regression of scores, standardised by site, that is fitted to all other sites."""
    inputs = [np.column_stack([zscore(one["scores"][k]) for k in names]) for one in sites]
    areas = []
    for e, own in enumerate(sites):
        others = [i for i in range(len(sites)) if i != e]
        truth = np.concatenate([sites[i]["inside"] for i in others])
        model = LogisticRegression().fit(np.concatenate([inputs[i] for i in others]), truth)
        areas.append(auc(own["inside"], model.decision_function(inputs[e])))
    return areas


def print_membership(halves: list[list[dict[str, Any]]]) -> None:
    """Print AUC of membership and of the label, over all sites of both halves."""
    sites = list(chain(*halves))
    alone = [key for key in sites[0]["scores"] if "span" not in key]
    rows = {key: [auc(one["inside"], one["scores"][key]) for one in sites] for key in alone}
    rows |= {key: [v for half in halves for v in combine_scores(half, names)] for key, names in TOGETHER.items()}
    rows |= {key: [auc(one["inside"], one["spans"][key][2]) for one in sites] for key in list(sites[0]["spans"])[1:]}
    print("\n| vector | membership: mean AUC over sites | range | label of members: AUC | of outsiders |")
    print("| --- | --- | --- | --- | --- |")
    for key, areas in rows.items():
        found = np.mean([one["labels"][key] for one in sites], axis=0) if key in sites[0]["labels"] else ()
        cells = [f"{np.mean(areas):.3f}", f"{min(areas):.2f} to {max(areas):.2f}", *(f"{v:.3f}" for v in found)]
        print("|", " | ".join([key, *cells, *[""] * (4 - len(cells))]), "|")


def print_reconstruction(sites: list[dict[str, Any]]) -> None:
    """Print how much of the scans lies in the span of vectors, by size of the site, and what follows for certain."""
    print("\n| vectors | scans of a site | sites | vectors of it | rank ", end="")
    print("| members in the span: mean, largest | outsiders | members along one vector | outsiders |\n|" + " --- |" * 9)
    for key, (low, high) in product(sites[0]["spans"], ((0, 20), (20, 40), (40, 10_000))):
        if not (group := [one for one in sites if low <= one["n"] < high]):
            continue
        columns = [one["n"] for one in group], *([one["spans"][key][i] for one in group] for i in (0, 1))
        n, sent, ranks = (f"{min(v)} to {max(v)}" if min(v) < max(v) else str(v[0]) for v in columns)
        of_scans = [[(one["spans"][key][i], one["inside"]) for one in group] for i in (2, 3)]
        found = [[values[inside == who] for values, inside in part] for part in of_scans for who in (True, False)]
        spread = [f"{np.mean([v.mean() for v in part]):.2f}, {max(v.max() for v in part):.2f}" for part in found]
        print("|", " | ".join([key, n, str(len(group)), sent, ranks, *spread]), "|")
    n, d = min(one["n"] for one in sites), sites[0]["d"]
    print(f"\nUnknown at the smallest site: {n} x {d} features and {n} labels; each vector gives {d} values.")
    error = max(one["solved"] for one in sites)
    print(f"Labels of a site from A'b, for who has all its scans: error at most {error:.0e}.")
    print("Vectors of a site by difference, leaving one site out, with the largest error relative to the vector:")
    worst = {key: max(one["differences"][key] for one in sites) for key in sites[0]["differences"]}
    print("; ".join(f"{key} {value:.0e}" for key, value in worst.items()) + ".")
    out = np.concatenate([one["ruled_out"] for one in sites])
    print(f"Outsiders without signal in a region where all members have it: {out.sum()} of {len(out)}.")


def make_questions(label: np.ndarray) -> dict[str, list[np.ndarray]]:
    """Make series of labels [n] that single out participant 0; -1 is left out."""
    n, first = len(label), np.arange(len(label)) == 0
    part = np.where(first, -1, np.arange(n) % 3)
    return {
        "one participant of another class": [label, np.where(first, 1 - label, label)],
        "one participant left out": [label, np.where(first, -1, label)],
        "all but one of another class": [label, np.where(first, label, 1 - label)],
        "three questions, one participant in no part": [np.where(part == k, 1, 0) for k in range(3)],
    }


def relabel(cohort: Cohort, label: np.ndarray, again: bool) -> Cohort:
    """Give scans other labels and leave out those with -1; ``again``: in another order and under other names."""
    asked = replace(cohort, participants=cohort.participants.assign(label=label)).select(np.flatnonzero(label >= 0))
    if not again:
        return asked
    asked = asked.select(np.arange(len(asked))[::-1])
    return replace(asked, participants=asked.participants.assign(participant_id=[f"p{k}" for k in range(len(asked))]))


def sum_classes(terms: federation.Terms, cohort: Cohort, others: list[Arrays]) -> np.ndarray:
    """Compute the sums of the features of each class of a site from its answers to two rounds. Shape [2, d]."""
    site = Site(terms, cohort, 1)
    described = [site.describe(), *others]
    progress = Progress(terms, [{key: np.sum([one[key] for one in described], axis=0) for key in described[0]}])
    own, begun = described[0], site.begin(progress)
    n = own["n"].sum()
    whole = own["features"] + (n - own["live"]) * progress.fill
    difference = begun["labels"] + whole * (own["n"][1] - own["n"][0]) / n
    return np.array([(whole - difference) / 2, (whole + difference) / 2])


def count_answered(terms: federation.Terms, cohorts: list[Cohort]) -> int:
    """Count how many of several projects a site answers that keeps the record of its questions."""
    answered = 0
    with tempfile.TemporaryDirectory() as place:
        for k, cohort in enumerate(cohorts):
            asked = replace(terms, project=f"project{k}", iterations=1)
            path, record = Path(place, f"request{k}"), Path(place, f"record{k}")
            federation.write_message(path, federation.start(asked))
            agreed = federation.Agreement(vectors=2 * len(cohorts), least_per_class=1)
            try:
                federation.answer_and_record(path, cohort, record, agreed, Path(place, "answered"))
            except BrioError:
                continue
            answered += 1
    return answered


def attack_projects(terms: federation.Terms, cohorts: dict[str, Cohort]) -> None:
    """Print what answers to several projects, and to odd cohorts, give away of three sites."""
    sites = {e: Site(terms, cohort) for e, cohort in cohorts.items()}
    described = {e: site.describe() for e, site in sites.items()}
    print(
        "\n| questions | imported again | sites | error of the connectome of one participant | sites that answer all |"
    )
    print("| --- | --- | --- | --- | --- |")
    for name, again in product(make_questions(np.array([0, 1])), (False, True)):
        errors, answered = [], 0
        for e, site in sites.items():
            labels, others = make_questions(site.label)[name], [one for k, one in described.items() if k != e]
            made = [relabel(site.cohort, label, again and k > 0) for k, label in enumerate(labels)]
            sums = np.concatenate([sum_classes(terms, one, others) for one in made])
            which = np.array([label == k for label in labels for k in (0, 1)], dtype=float)
            weights = np.linalg.lstsq(which.T, np.eye(len(site.label))[0])[0]
            live = site.live.all(0)
            errors.append(np.abs(weights @ sums - site.plain[0])[live].max())
            answered += count_answered(terms, made) == len(made)
        print(f"| {name} | {'yes' if again else 'no'} | {len(sites)} | {max(errors):.0e} | {answered} |")
    print("\nHead motion known for few participants: number of values of which a sum is sent, by site.")
    for known in (1, 2, FEWEST - 1, FEWEST):
        sent = []
        for site in sites.values():
            motion = np.where(np.arange(len(site.label)) < known, site.cohort.participants["mean_fd"], np.nan)
            table = site.cohort.participants.assign(mean_fd=motion)
            sent.append(int(Site(terms, replace(site.cohort, participants=table)).describe()["facts"][2, 0]))
        print(f"- {known}: {', '.join(map(str, sent))}")
    for key in ("features", "fc_means", "squares"):
        whole = np.sum([one[key] for one in described.values()], axis=0)
        error = max(
            np.linalg.norm(whole - sum(one[key] for k, one in described.items() if k != e) - own[key])
            / np.linalg.norm(own[key])
            for e, own in described.items()
        )
        print(f"Two of three sites that collude subtract their own {key} from the sum: relative error {error:.0e}.")


def count_small_sums(terms: federation.Terms, cohorts: dict[str, Cohort]) -> None:
    """Print how many pairs of regions have signal in few participants of a class, and of how many a sum is sent."""
    small, sent = 0, 0
    for cohort in cohorts.values():
        whole, own = Site(terms, cohort, 1), Site(terms, cohort)
        counts = np.array([whole.live[whole.label == k].sum(0) for k in (0, 1)])
        few = ((counts > 0) & (counts < FEWEST)).any(0)
        small, sent = small + int(few.sum()), sent + int((few & own.live.any(0)).sum())
    print(f"Pairs of regions with signal in 1 to {FEWEST - 1} scans of a class, over sites: {small}; sent: {sent}.")


def main() -> None:
    """Attack both halves of a cohort."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", type=Path)
    parser.add_argument("--projects", action="store_true")
    given = parser.parse_args()
    cohort = Cohort.load(given.cohort)
    cohort = cohort.select(audit(cohort).keep)
    dealt = assign_stratified_folds(draws.addresses(cohort.participant_ids), cohort.sites, cohort.labels, 4, seed=0)
    where = {str(e): cohort.sites == e for e in np.unique(cohort.sites)}
    where = {e: k for e, k in where.items() if min(np.bincount(cohort.labels[k], minlength=2)) >= 10}
    rois = cohort.atlas.rois.to_dict("list")
    terms = federation.Terms("benchmark", "log-ridge", cohort.atlas.name, rois, cohort.classes)
    if given.projects:
        order = sorted(where, key=lambda e: where[e].sum())
        print(f"{cohort.name}, log-ridge")
        attack_projects(terms, {e: cohort.select(where[e]) for e in (order[0], order[len(order) // 2], order[-1])})
        return count_small_sums(terms, {e: cohort.select(k) for e, k in where.items()})
    whole = {e: Site(terms, cohort.select(k)) for e, k in where.items()}
    halves = [attack_half(terms, whole, {e: dealt[k] for e, k in where.items()}, half) for half in (0, 1)]
    n = sum(map(np.count_nonzero, where.values()))
    print(f"{cohort.name}, log-ridge: {n} scans of {len(whole)} sites; half of each answer, then the other")
    print_membership(halves)
    print_reconstruction(list(chain(*halves)))


if __name__ == "__main__":
    main()
