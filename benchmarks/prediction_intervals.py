"""Do the intervals of predictions hold what other minutes say, and do decided predictions keep their promise?

    python benchmarks/prediction_intervals.py COHORT [--with COHORT] [--method ridge] [--reestimates 47] [--figure FILE]

Every site is left out in turn, the method is fitted to all others. The interval of the first half of each scan of the
left-out site is compared with the margin of its second half: printed is how often it holds it, by the number of frames
of a half. Then whole scans of all left-out sites are ordered by the absolute logit: printed is the accuracy of the most
decided ones, and what a rule achieves at a site whose threshold was chosen on the other left-out sites.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np

from brio.cohort import Cohort, audit
from brio.connectome import BlockRule, Connectomes
from brio.connectome.resampling import find_design_size
from brio.device import resolve_device
from brio.models.evidence import choose_rule, learn_call_rules, trace_risk
from brio.models.fit import learn_interval_factor, settle_final_settings
from brio.models.model import Member, Model
from brio.models.predict import compute_half_width
from brio.models.ranges import halve_scans
from brio.protocol import leave_one_site_out
from brio.protocol.metrics import calibrate_margins
from brio.training import Run

LEVELS = (0.5, 0.8, 0.9, 0.95)
ACCURACIES = (0.7, 0.75, 0.8)


def main() -> None:
    """Leave every site out, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("--with", dest="companions", action="append", default=[])
    parser.add_argument("--method", default="ridge")
    parser.add_argument("--reestimates", type=int, default=47)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    cohort = Cohort.load(args.cohort)
    cohort = cohort.select(audit(cohort, companions=[Cohort.load(c) for c in args.companions]).keep)
    compute = resolve_device(args.device)
    method = settle_final_settings(args.method, {})
    whole, first, second = (Connectomes(c, compute.torch_device) for c in (cohort, *halve_scans(cohort)))
    logit, this, other, factor = (np.empty(len(cohort)) for _ in range(4))
    resampled = np.empty((len(cohort), find_design_size(args.reestimates)))
    folds = leave_one_site_out(cohort, 0, validation_sites=0)
    for fold, fitted in zip(folds, method.fit(whole, [Run(fold, 0) for fold in folds]), strict=True):
        source = fold.source
        block = fitted.block_length or whole.estimate_block_length(
            source, cohort.sites[source], cohort.labels[source], BlockRule(), 0
        )
        model = Model(method, (Member(fitted),), cohort.atlas, cohort.classes, block, 1.0, None, None, None, None)  # type: ignore[arg-type]
        logit[fold.test] = calibrate_margins(fitted.test_logit, fitted.details)
        factor[fold.test] = learn_interval_factor(model, whole, source)
        this[fold.test], resampled[fold.test] = model.compute_logits(_select(first, fold.test), args.reestimates)
        other[fold.test], _ = model.compute_logits(_select(second, fold.test))
    print(f"factor learned from source scans: {factor.mean():.2f} ({factor.min():.2f} to {factor.max():.2f})\n")
    print_coverage(this, other, resampled, factor, first.n_frames)
    print_risk(cohort, logit)
    if args.figure:
        draw_risk(cohort, logit, args.figure)


def _select(connectomes: Connectomes, scans: np.ndarray) -> Connectomes:
    return Connectomes(connectomes.cohort.select(scans), connectomes.device)


def print_coverage(
    this: np.ndarray, other: np.ndarray, resampled: np.ndarray, factor: np.ndarray, n_frames: np.ndarray
) -> None:
    """Print how often the interval of one half holds the margin of the other, by length."""
    cuts = np.quantile(n_frames, [0, 1 / 3, 2 / 3, 1])
    groups = [("all", np.ones(len(this), dtype=bool))]
    for low, high in itertools.pairwise(cuts):
        inside = (n_frames >= low) & (n_frames <= high if high == cuts[-1] else n_frames < high)
        groups.append((f"{n_frames[inside].min()} to {n_frames[inside].max()}", inside))
    print("| frames of a half | scans | " + " | ".join(f"holds, nominal {level:.0%}" for level in LEVELS), end=" | ")
    print("SD of the difference | expected |\n|" + " --- |" * (len(LEVELS) + 4))
    for name, inside in groups:
        gap = np.abs(other - this)[inside]
        held = [100 * np.mean(gap <= (factor * compute_half_width(resampled, level))[inside]) for level in LEVELS]
        expected = np.sqrt(2 * np.mean(resampled[inside].var(axis=1, ddof=1)))
        found = np.sqrt(np.mean(np.square(other - this)[inside]))
        cells = [name, str(int(inside.sum())), *(f"{h:.1f}%" for h in held), f"{found:.2f}", f"{expected:.2f}"]
        print(f"| {' | '.join(cells)} |")
    gap, half = np.abs(other - this), compute_half_width(resampled)
    print(f"\nnominal 95%, without the factor: {100 * np.mean(gap <= half):.1f}%", end="; ")
    print(f"without the root of two as well: {100 * np.mean(gap <= half / np.sqrt(2)):.1f}%\n")


def print_risk(cohort: Cohort, logit: np.ndarray) -> None:
    """Print accuracy against coverage, and what rules chosen on other sites achieve."""
    print("| most decided | accuracy | absolute logit at least |\n| --- | --- | --- |")
    for point in trace_risk(cohort.labels, logit):
        if round(20 * point.coverage) % 2 == 0:
            print(f"| {point.coverage:.0%} | {100 * point.accuracy:.1f}% | {point.threshold:.2f} |")
    print("\n| wanted accuracy | promised | achieved at left-out sites | decided |\n| --- | --- | --- | --- |")
    rules = learn_call_rules(cohort.labels, logit, cohort.sites)
    for wanted in ACCURACIES:
        rule = choose_rule(rules, wanted)
        if rule is None:
            print(f"| {wanted:.0%} | none | none | 0.0% |")
            continue
        promised = ((logit > 0) == cohort.labels)[np.abs(logit) >= rule.threshold].mean()
        cells = [f"{wanted:.0%}", *(f"{100 * share:.1f}%" for share in (promised, rule.accuracy.value, rule.coverage))]
        print(f"| {' | '.join(cells)} |")


def draw_risk(cohort: Cohort, logit: np.ndarray, path: Path) -> None:
    """Draw accuracy against coverage."""
    from brio.drawing import make_panels

    figure, (axis,) = make_panels(1, 5.2, 3.6)
    order = np.argsort(-np.abs(logit), kind="stable")
    right = ((logit > 0) == cohort.labels)[order]
    n = np.arange(1, len(order) + 1)
    axis.plot(100 * n[20:] / len(n), 100 * np.cumsum(right)[20:] / n[20:])
    axis.axhline(100 * right.mean(), color="0.6", linewidth=0.8)
    axis.set_xlabel("share of scans that are decided, %")
    axis.set_ylabel("accuracy at left-out sites, %")
    figure.savefig(path)


if __name__ == "__main__":
    main()
