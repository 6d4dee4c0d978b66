"""Which budget and which settings should a network have? Decide on validation sites, without any test site.

    python benchmarks/validation_sites.py record COHORT OUT [--with COHORT] [--seeds 2] [--device cuda] \\
        --arm "gcn" --arm "raw: brio descriptors=raw"
    python benchmarks/validation_sites.py report OUT [OUT ...]

``record`` trains every fold of leave-one-site-out once to the last epoch. It stores the AUC on each of its two
validation sites after every epoch, as OUT/ARM.npz. ``report`` chooses the epoch on one validation site and scores the
other, both ways round, under three budgets: 80 epochs with patience 25, 80 epochs without early stopping, 220 epochs
with patience 80. It prints a Markdown table: mean AUC over folds, seeds and both ways round; what the second and third
budget add to the first, with a t interval over the sites that are scored. No scan of a test site is scored.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from scipy import stats

from brio.cohort import Cohort, audit
from brio.connectome import Connectomes
from brio.device import resolve_device
from brio.methods import make_method
from brio.protocol import auc, leave_one_site_out
from brio.training import Run, trainer
from brio.training.trainer import BestValidationEpoch

BUDGETS = {"80 epochs, patience 25": (80, 25), "80 epochs": (80, 80), "220 epochs, patience 80": (220, 80)}


class SiteRecorder(BestValidationEpoch):
    """Stores the AUC of every run on each of its two validation sites, after every epoch."""

    curves: dict[int, np.ndarray]

    def consider(self, score_scans, tensors, epoch):  # type: ignore[no-untyped-def]
        """Score the validation sites one by one, then go on as always."""

        def record(scans: np.ndarray) -> np.ndarray:
            logit = score_scans(scans)
            self.curves[epoch] = np.array([self.score_sites(r, row) for r, row in enumerate(logit)])
            return logit

        super().consider(record, tensors, epoch)

    def score_sites(self, r: int, logit: np.ndarray) -> list[float]:
        """AUC of run r on each of its validation sites, by name."""
        masks = [self.mask[r] & (self.site[r] == site) for site in np.unique(self.site[r][self.mask[r]])]
        return [auc(self.label[r][m], logit[m]) if np.isfinite(logit[m]).all() else float("nan") for m in masks]


def record(args: argparse.Namespace) -> None:
    """Train every arm and store its curves."""
    cohort = Cohort.load(args.cohort)
    cohort = cohort.select(audit(cohort, companions=[Cohort.load(c) for c in args.companions]).keep)
    compute = resolve_device(args.device)
    graphs = Connectomes(cohort, compute.torch_device)
    runs = [Run(fold, seed) for seed in range(args.seeds) for fold in leave_one_site_out(cohort, seed)]
    args.out.mkdir(parents=True, exist_ok=True)
    trainer.BestValidationEpoch = SiteRecorder  # type: ignore[misc]
    for arm in args.arm:
        title, _, rest = arm.rpartition(":")
        name, *changes = rest.split()
        settings = {"epochs": args.epochs, "patience": "none"} | dict(change.split("=", 1) for change in changes)
        method, start, parts = make_method(name, settings), time.perf_counter(), []
        for first in range(0, len(runs), args.runs_per_stack):
            SiteRecorder.curves = {}
            with compute.network_precision():
                method.fit(graphs, runs[first : first + args.runs_per_stack])  # type: ignore[attr-defined]
            curve = np.full((args.epochs, len(runs[first : first + args.runs_per_stack]), 2), np.nan)
            for epoch, scores in SiteRecorder.curves.items():
                curve[epoch - 1] = scores
            parts.append(curve)
        sites = np.array([sorted(run.fold.validation_sites) for run in runs])
        np.savez(args.out / f"{title or name}.npz", auc=np.concatenate(parts, 1), sites=sites)
        print(f"{title or name}: {time.perf_counter() - start:.0f} s", flush=True)


def score_other_site(curve: np.ndarray, budget: tuple[int, int], window: int) -> np.ndarray:
    """Choose each run's epoch on one validation site and score the other, both ways round.

    Parameters
    ----------
    curve : ndarray, shape [epochs, runs, 2]
    budget : tuple of int
        Epochs and patience.
    window : int
        Epochs whose scores are averaged before the best is chosen.

    Returns
    -------
    ndarray, shape [runs, 2]
        AUC on the site that did not choose.
    """
    epochs, patience = budget
    out = np.full(curve.shape[1:], np.nan)
    for r in range(curve.shape[1]):
        for chooser in (0, 1):
            scores = curve[:epochs, r, chooser]
            first = int(np.flatnonzero(np.isfinite(scores))[0])
            kernel = np.ones(window) / window
            smooth = np.convolve(np.pad(scores[first:], (window - 1, 0), mode="edge"), kernel, mode="valid")
            best = 0
            for epoch in range(len(smooth)):
                if smooth[epoch] > smooth[best]:
                    best = epoch
                elif epoch - best >= patience:
                    break
            out[r, 1 - chooser] = curve[first + best, r, 1 - chooser]
    return out


def average_by_site(values: np.ndarray, sites: np.ndarray) -> np.ndarray:
    """Mean over runs of each scored site, [sites], in percent."""
    return np.array([100 * np.nanmean(values[sites == site]) for site in np.unique(sites)])


def describe_gain(gain: np.ndarray) -> str:
    """Mean over sites, with a t interval."""
    half = stats.t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / len(gain) ** 0.5
    return f"{gain.mean():+.1f} ({gain.mean() - half:+.1f} to {gain.mean() + half:+.1f})"


def report(args: argparse.Namespace) -> None:
    """Print the table of all recorded arms; a budget is left out where an arm was recorded for fewer epochs."""
    for folder in args.out:
        header = [
            "arm",
            "runs",
            *BUDGETS,
            "first, best mean of 5 epochs",
            "second minus first",
            "third minus first",
        ]
        print(f"\n{folder.name}\n\n| {' | '.join(header)} |\n|{' --- |' * len(header)}")
        arms = {path.stem: np.load(path) for path in sorted(folder.glob("*.npz"))}
        scores = {name: score_budgets(arm["auc"], arm["sites"]) for name, arm in arms.items()}
        for name, (first, *others, smooth) in scores.items():
            cells = [name, str(arms[name]["auc"].shape[1]), *(describe_mean(v) for v in (first, *others, smooth))]
            cells += ["-" if v is None else describe_gain(v - first) for v in others]
            print(f"| {' | '.join(cells)} |")


def score_budgets(curve: np.ndarray, sites: np.ndarray) -> list[np.ndarray | None]:
    """AUC of every scored site under each budget, and under the first by the best mean of five epochs."""
    kinds = [(budget, 1) for budget in BUDGETS.values()] + [(next(iter(BUDGETS.values())), 5)]
    return [
        average_by_site(score_other_site(curve, budget, window), sites) if budget[0] <= len(curve) else None
        for budget, window in kinds
    ]


def describe_mean(scores: np.ndarray | None) -> str:
    """Mean over sites."""
    return "-" if scores is None else f"{scores.mean():.1f}"


def main() -> None:
    """Record or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record")
    recording.add_argument("cohort")
    recording.add_argument("out", type=Path)
    recording.add_argument("--with", dest="companions", action="append", default=[])
    recording.add_argument("--arm", action="append", required=True, help="[title:] method [setting=value ...]")
    recording.add_argument("--seeds", type=int, default=2)
    recording.add_argument("--epochs", type=int, default=220)
    recording.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda-tf32")
    recording.add_argument("--runs-per-stack", type=int, default=40)
    recording.set_defaults(do=record)
    reporting = commands.add_parser("report")
    reporting.add_argument("out", type=Path, nargs="+")
    reporting.set_defaults(do=report)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
