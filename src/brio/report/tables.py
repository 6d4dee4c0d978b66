"""Tables of jobs in Markdown, written from their summaries."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import pandas as pd

from ..formatting import format_count
from ..methods import list_methods
from ..methods.provenance import rank_block
from ..protocol import USUAL_VALIDATION_SITES, ProtocolSettings
from ..results import MethodSummary, MetricSummary, Summary
from ..results.format import MISSING, format_interval, format_percent, format_table, format_training


def paper_figures() -> pd.DataFrame:
    """Return the scores of the paper's main table (leave one site out).

    Returns columns cohort, method, auc, auc_sd, acc, acc_sd; the SD is over sites.
    """
    with resources.files("brio.report").joinpath("paper_loso.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def markdown_table(summaries: Sequence[Summary], paper: bool = False) -> str:
    """Write a table with one row per method and job: mean ± SD over test sites (or folds), in percent.

    Rows are in blocks (BRIO; published code or equations; our reading; redesigns; linear models; controls), methods of
    a block in the order of ``brio methods``. Rows of smoke runs are marked as such. Lines below the table
    say which intervals it has, and what must be known to read it (:attr:`~brio.results.Summary.cautions`).
    """
    order = {entry.name: k for k, entry in enumerate(list_methods())}
    published = paper_figures().set_index(["cohort", "method"]).to_dict("index")
    header = ["cohort", "family", "method", "AUC", "95 % interval"]
    header += ["pair-weighted AUC", "95 % interval, participants", "AUC, seeds averaged", "ACC"]
    header += ["paper's AUC", "paper's ACC"] if paper else []
    header += ["folds", "seeds", "epochs (steps)", "K", "block", "settings", "provenance", ""]
    rows = []
    for summary in summaries:
        for name, method in summary.methods.items():
            row = [f"{summary.cohort} ({summary.n_scans})", method.family, name]
            row += [_format_mean_sd(method.auc), format_interval(method.auc.interval)]
            pairs = method.pair_weighted_auc or MetricSummary()
            row += [format_percent(pairs.mean), format_interval(pairs.interval)]
            row += [_format_mean_sd(method.auc_of_averaged_logits), _format_mean_sd(method.acc)]
            if paper:
                reported = published.get((summary.cohort, name)) if summary.protocol == "loso" else None
                row += [_format_reported(reported, metric) for metric in ("auc", "acc")]
            training = format_training(method.epochs, method.trained_epochs, method.steps)
            row += [str(method.folds), str(method.seeds), training, str(method.K or MISSING), method.block]
            row += [_describe_settings(method, summary), method.provenance, _list_remarks(summary, method)]
            rows.append((summary.cohort, rank_block(method.block), order.get(name, len(order)), row))
    rows.sort(key=lambda r: r[:3])
    kinds = dict.fromkeys(summary.intervals for summary in summaries)
    notes = [f"95 % interval of the mean AUC: {'; '.join(kinds)}."]
    if any(method.pair_weighted_auc for summary in summaries for method in summary.methods.values()):
        notes.append(
            "Pair-weighted: every pair of participants of the two classes at one test site counts alike; its interval "
            "is over participants at these sites."
        )
    if any(summary.protocol == "loso" for summary in summaries):
        notes.append(
            "AUC and ACC: over test sites, of the mean over seeds. AUC, seeds averaged: of the mean logits over seeds."
        )
    notes += dict.fromkeys(caution for summary in summaries for caution in summary.cautions)
    return "\n".join([format_table(header, [row for *_, row in rows]), "", *notes]) + "\n"


def _format_mean_sd(metric: MetricSummary) -> str:
    spread = "" if metric.mean is None or metric.sd is None else f" ± {format_percent(metric.sd)}"
    return f"{format_percent(metric.mean)}{spread}"


def _format_reported(scores: dict[str, float] | None, metric: str) -> str:
    return f"{scores[metric]:.1f} ± {scores[f'{metric}_sd']:.1f}" if scores else MISSING


def _describe_settings(method: MethodSummary, summary: Summary) -> str:
    changed = ", ".join(f"{k}={v}" for k, v in (method.changed or {}).items())
    tuning = method.tuning
    if tuning is None or not method.is_tuned:
        return MISSING if method.changed is None else changed or "default"
    here = (tuning.cohort, tuning.atlas) == (summary.cohort, summary.atlas)
    carried = "" if here else f", carried from {tuning.cohort}"
    return f"best of {tuning.budget} on validation scans{carried}" + (f"; {changed}" if changed else "")


def _list_remarks(summary: Summary, method: MethodSummary) -> str:
    remarks = ["smoke run"] if summary.smoke_run else []
    remarks += [*(["k-fold"] if summary.protocol == "kfold" else []), *_describe_unusual_folds(summary)]
    remarks += [summary.harmonise] if summary.harmonise else []
    remarks += ["transductive"] if method.transductive else []
    remarks += ["control"] if method.control else []
    return ", ".join(remarks)


def _describe_unusual_folds(summary: Summary) -> list[str]:
    """Say how many validation sites or folds a job has, where these are not the usual ones."""
    what = "validation_sites" if summary.protocol == "loso" else "validation_folds"
    usual = USUAL_VALIDATION_SITES if summary.protocol == "loso" else ProtocolSettings.validation_folds
    n = (summary.protocol_settings or {}).get(what, usual)
    unit = what.replace("_", " ").removesuffix("s")
    return [] if n == usual else [format_count(n, unit) if n else f"no {unit}s"]
