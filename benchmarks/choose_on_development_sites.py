"""Which settings should a network have? Decide on ten development sites; the other ten are only audited.

    python benchmarks/choose_on_development_sites.py COHORT OUT.json --arm "brio" --arm "cloud 1: brio cloud=1" ...
    python benchmarks/choose_on_development_sites.py --report OUT.json [OUT.json ...]

The development sites are every second one by name. Each of them is left out in turn; two others validate and the rest
train, every run to its last epoch. Checkpoints are chosen on the validation sites by five rules: the best AUC, the best
mean AUC of five epochs, the least mean loss of five epochs, and the first and the last of these for weights that are
averaged over epochs (each epoch keeps nine tenths of the average before it). Prints a Markdown table: the AUC at the
left-out development site, mean over sites and seeds, of averaged seeds, and the difference to the first arm with its
standard error over sites. OUT.json holds the AUC of each site.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from brio.cohort import Cohort, audit
from brio.connectome import Connectomes
from brio.device import resolve_device
from brio.methods import make_method
from brio.protocol import auc, leave_one_site_out
from brio.training import Run, trainer
from brio.training.trainer import BestValidationEpoch, rank_auc

KEPT = 0.9  # of the average of weights, in an epoch
WINDOW = 5
RULES = ("best AUC", "best mean of 5", "least loss, mean of 5", "averaged weights, best AUC", "averaged weights, loss")


class Recorder(BestValidationEpoch):
    """Keeps, after every epoch, AUC and loss on the validation scans and the logits of the left-out site."""

    def __init__(self, cohort, runs, settings):  # type: ignore[no-untyped-def]
        super().__init__(cohort, runs, settings)
        width = max(len(run.fold.test) for run in runs)
        self.test = np.stack([np.resize(run.fold.test, width) for run in runs])
        self.kept: list[list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = []
        self.average: dict[str, torch.Tensor] = {}
        Recorder.latest = self

    latest: "Recorder"

    def consider(self, score_scans, tensors, epoch):  # type: ignore[no-untyped-def]
        """Score validation and test scans under the present and under averaged weights."""
        stack = score_scans.__self__
        present = {name: p.detach() for name, p in stack.params.items()}
        for name, p in present.items():
            self.average[name] = torch.lerp(p, self.average[name], KEPT) if name in self.average else p.clone()
        scored = [self.score_epoch(stack)]
        stack.params, params = self.average, stack.params
        scored.append(self.score_epoch(stack))
        stack.params = params
        self.kept.append(scored)
        self.curve.append((epoch, scored[0][0]))
        self.best[:], self.epoch[:] = scored[0][0], epoch
        self.keep(tensors, np.ones(len(self.best), dtype=bool))

    def score_epoch(self, stack) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[no-untyped-def]
        """AUC [R] and loss [R] on the validation scans; logits of the test scans [R, n]."""
        logit, sign = stack.score_scans(self.scans), 2.0 * self.label - 1.0
        loss = (np.logaddexp(0, -sign * logit) * self.mask).sum(1) / self.mask.sum(1)
        return rank_auc(logit, self.label, self.mask), loss, stack.score_scans(self.test)


def choose_epochs(score: np.ndarray, window: int) -> np.ndarray:
    """Epoch with the best mean score of the epochs up to it, of each run; the first have fewer. [epochs, R] -> [R]."""
    smooth = np.stack([score[max(0, e - window + 1) : e + 1].mean(0) for e in range(len(score))])
    return np.where(np.isfinite(smooth), smooth, -np.inf).argmax(0)


def score_rules(recorder: Recorder, cohort: Cohort, runs: list[Run]) -> dict[str, dict[str, list[float]]]:
    """AUC of each left-out site under each rule: of single seeds, and of the mean logit of all seeds."""
    found, names = {}, sorted({run.fold.name for run in runs})
    for rule in RULES:
        kept = [epoch["averaged" in rule] for epoch in recorder.kept]
        by_loss, window = "loss" in rule, WINDOW if "5" in rule or "loss" in rule else 1
        chosen = choose_epochs(np.stack([-k[1] if by_loss else k[0] for k in kept]), window)
        logits = [kept[e][2][r][: len(runs[r].fold.test)] for r, e in enumerate(chosen)]
        own = {name: [r for r, run in enumerate(runs) if run.fold.name == name] for name in names}
        labels = {name: cohort.labels[runs[rows[0]].fold.test] for name, rows in own.items()}
        found[rule] = {
            "single": [float(np.mean([auc(labels[n], logits[r]) for r in own[n]])) for n in names],
            "averaged": [auc(labels[n], np.mean([logits[r] for r in own[n]], axis=0)) for n in names],
        }
    return found


def record(args: argparse.Namespace) -> None:
    """Train every arm and store the AUC of each development site under each rule."""
    cohort = Cohort.load(args.cohort)
    cohort = cohort.select(audit(cohort).keep)
    cohort = cohort.select(np.isin(cohort.sites, np.unique(cohort.sites)[::2]))
    compute = resolve_device(args.device)
    graphs = Connectomes(cohort, compute.torch_device)
    runs = [Run(fold, seed) for seed in range(args.seeds) for fold in leave_one_site_out(cohort, seed)]
    trainer.BestValidationEpoch = Recorder  # type: ignore[misc]
    for arm in args.arm:
        title, _, rest = arm.rpartition(":")
        name, *changes = rest.split()
        method = make_method(name, {"patience": "none"} | dict(change.split("=", 1) for change in changes))
        start = time.perf_counter()
        with compute.network_precision():
            fitted = method.fit(graphs, runs)  # type: ignore[attr-defined]
        facts = {"seconds": time.perf_counter() - start, "steps": int(np.mean([run.steps for run in fitted]))}
        found = json.loads(args.out.read_text()) if args.out.exists() else {}
        found[title or rest.strip()] = facts | {"rules": score_rules(Recorder.latest, cohort, runs)}
        args.out.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{arm}: {facts}", flush=True)


def report(paths: list[Path]) -> None:
    """Print a table of all arms and rules of each file."""
    for path in paths:
        found = json.loads(path.read_text())
        first = next(iter(found.values()))["rules"][RULES[0]]
        print(f"\n{path.stem}\n\n| arm | steps | rule | AUC | difference | averaged seeds | their difference |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for arm, facts in found.items():
            for rule in RULES:
                cells = [arm, str(facts["steps"]), rule]
                for kind in ("single", "averaged"):
                    own, other = (100 * np.array(x[kind]) for x in (facts["rules"][rule], first))
                    error = (own - other).std(ddof=1) / len(own) ** 0.5
                    cells += [f"{own.mean():.1f}", f"{(own - other).mean():+.1f} ± {error:.1f}"]
                print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Record or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", nargs="?", type=Path)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--arm", action="append", default=[], help="[title:] method [setting=value ...]")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda-tf32")
    parser.add_argument("--report", nargs="+", type=Path)
    args = parser.parse_args()
    if args.report:
        report(args.report)
    else:
        record(args)


if __name__ == "__main__":
    main()
