"""Fits: linear models whose penalty inner folds choose, a fold of BRIO plus, and a guided epoch of BRIO."""

import numpy as np
import pytest
import torch
from brio_flops import count_flops
from plain_brio import PlainRun

from brio.methods import make_method
from brio.protocol import leave_one_site_out
from brio.training import Run, Stack
from brio.training.stack import StackedAdamW
from brio.training.trainer import Step, _train_epoch

LINEAR = ["ridge", "svm", "tangent-ridge", "logistic"]
TOGETHER = f"{', '.join(LINEAR)} together"
SCIKIT = "scikit-learn, GridSearchCV over LeaveOneGroupOut (one fold, times all)"


def make_runs(connectomes, validation_sites=0):
    return [Run(fold, 0) for fold in leave_one_site_out(connectomes.cohort, 0, validation_sites=validation_sites)]


def count_entries(connectomes):
    return connectomes.n_rois * (connectomes.n_rois - 1) / 2


def count_gram(connectomes):
    """Flops of one triangle of the products of all scans."""
    return float(len(connectomes)) ** 2 * count_entries(connectomes)


@pytest.mark.parametrize("contender", ["brio", SCIKIT])
@pytest.mark.parametrize("name", LINEAR)
def bench_linear(measure, rates, benchmark, threads, connectomes, name, contender):
    """All folds, one site each; the source sites are withheld in turn to choose among the penalties.

    The time of brio includes that of the features. The floor is one Gram matrix for all folds; in tangent space one for
    each fold, and the whitening of each matrix.
    """
    runs = make_runs(connectomes)
    benchmark.group = f"{name}, {len(runs)} folds, penalty by inner folds"
    method = make_method(name, {"choose_by": "source-sites"})
    facts = {"part_of": TOGETHER, "most_seconds_together": 120}
    if contender == "brio":
        flops = count_gram(connectomes)
        if name == "tangent-ridge":
            flops = len(runs) * (flops + 4.0 * len(connectomes) * connectomes.n_rois**3)
        measure(lambda: method.fit(connectomes, runs), rounds=1, warm=False, floor=rates.bound(flops=flops), **facts)
        return
    from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut

    run = method.prepare_run(connectomes, method.open_scans(connectomes), runs[0])  # features are a gift
    estimator, grid = {"svm": make_svm, "logistic": make_logistic}.get(name, make_ridge)(run.penalties)
    search = GridSearchCV(estimator, grid, scoring="roc_auc", cv=LeaveOneGroupOut(), n_jobs=threads)
    labels = connectomes.cohort.labels[run.source.scans]
    measure(
        lambda: search.fit(run.rows.x, labels, groups=run.inner_fold), rounds=1, warm=False, times=len(runs), **facts
    )  # long enough to need no round that warms up


def make_ridge(penalties):
    from sklearn.linear_model import RidgeClassifier

    return RidgeClassifier(), {"alpha": penalties}


def make_svm(penalties):
    from sklearn.svm import SVC

    return SVC(kernel="linear"), {"C": 1 / penalties}


def make_logistic(penalties):
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000), {"C": 4 / penalties}


@pytest.mark.benchmark(group="one fold of BRIO plus")
def bench_brio_plus(measure, rates, connectomes):
    """The floor: products of the re-estimates of every scan, and of scans and changes with each other."""
    method, runs = make_method("brio-plus"), make_runs(connectomes)[:1]
    p, copies = connectomes.n_rois, method.settings.K
    flops = copies * float(connectomes.n_frames.sum()) * p * (p + 1) + (1 + copies) ** 2 * count_gram(connectomes)
    floor = rates.bound(flops=flops, atanh=copies * len(connectomes) * count_entries(connectomes))
    measure(lambda: method.fit(connectomes, runs), rounds=1, most_seconds=4, floor=floor)


@pytest.mark.benchmark(group="one guided epoch of BRIO, one run")
@pytest.mark.parametrize("contender", ["brio", "plain PyTorch loop"])
def bench_guided_epoch(measure, rates, connectomes, contender):
    """M epochs, which hold one refresh. The floor: products of the network (a step is three passes forward) and of
    the re-estimates."""
    method = make_method("brio", {"T_w": 1})
    stage, every = method.stages()[1], method.settings.M

    def begin():
        stack = Stack.build(method, connectomes, make_runs(connectomes, validation_sites=2)[:1])
        method.begin_stage(stack, stage)
        return stack

    if contender != "brio":
        check_loss(method, begin())
        plain = {"rounds": 1, "warm": False, "target": 5, "times": 1 / every}
        measure(lambda run: run.train_epochs(), begin=lambda: PlainRun(method, begin()), **plain)
        return

    def begin_step():
        stack = begin()
        optimiser = StackedAdamW(stack.params, method.settings.learning_rate, method.settings.weight_decay)
        return Step(stack, optimiser, stage)

    def train_epochs(step):
        one = np.ones(1, dtype=bool)
        method.refresh(step.stack, one, 0)
        for epoch in range(every):
            _train_epoch(method, step, 2 + epoch, one)

    floor = find_epoch_floor(rates, method.settings, begin())
    measure(train_epochs, rounds=2, begin=begin_step, times=1 / every, most_seconds=4, floor=floor)


def check_loss(method, stack):
    """Check that the plain loop has the loss of brio in the first step, alignment included."""
    stack.state.training["g"].fill_(1.0)
    batch = torch.from_numpy(stack.sources.batches(2, method.settings.cell_batch)[0][0])
    own = stack.compute_losses(batch, torch.zeros(1, dtype=torch.int64), torch.tensor(2.0), method.stages()[1])
    torch.testing.assert_close(PlainRun(method, stack).find_loss(batch[0]), own[0], rtol=1e-5, atol=1e-6)


def find_epoch_floor(rates, settings, stack):
    """Seconds of the products and of Fisher z in a guided epoch."""
    batches, _ = stack.sources.batches(2, settings.cell_batch)
    source = stack.runs[0].fold.source
    refreshes = 1 / settings.M
    n_rois, n_frames = stack.connectomes.n_rois, int(stack.connectomes.n_frames[source].sum())
    return rates.bound(
        flops=count_flops(settings, n_rois, batches.size, refreshes, len(source), n_frames),
        atanh=refreshes * settings.K * len(source) * count_entries(stack.connectomes),
    )
