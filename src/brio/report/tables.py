"""Tables of jobs in Markdown, made from their summaries so that no number is typed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

import pandas as pd

from ..methods import list_methods
from ..protocol import ProtocolSettings

__all__ = ["markdown_table", "paper_figures"]


def paper_figures() -> pd.DataFrame:
    """What the paper's main table reports, leave one site out: cohort, method, AUC and ACC with their SD over sites.

    Examples
    --------
    >>> float(paper_figures().set_index(["cohort", "method"]).loc[("abide-aal116", "brio"), "auc"])
    67.53
    """
    with resources.files("brio.report").joinpath("paper_loso.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def _percent(found: dict[str, Any]) -> str:
    if found["mean"] is None:
        return "-"
    spread = "" if found["sd"] is None else f" ± {100 * found['sd']:.1f}"
    return f"{100 * found['mean']:.1f}{spread}"


def _interval(found: dict[str, Any]) -> str:
    return "-" if found["interval"] is None else " to ".join(f"{100 * v:.1f}" for v in found["interval"])


def _settings(found: dict[str, Any], summary: dict[str, Any]) -> str:
    tuning, changed = found["tuning"], found.get("changed")  # earlier versions did not keep what was changed
    given = ", ".join(f"{k}={v}" for k, v in (changed or {}).items())
    if tuning is None or tuning["budget"] == 1:
        return "-" if changed is None else given or "default"
    here = (tuning["cohort"], tuning["atlas"]) == (summary["cohort"], summary["atlas"])
    carried = "" if here else f", carried from {tuning['cohort']}"
    return f"best of {tuning['budget']} on validation scans{carried}" + (f"; {given}" if given else "")


def _remarks(summary: dict[str, Any], found: dict[str, Any]) -> str:
    remarks = ["smoke run"] if summary["smoke_run"] else []
    remarks += [*(["k-fold"] if summary["protocol"] == "kfold" else []), *_unlike_others(summary)]
    remarks += [summary["harmonise"]] if summary["harmonise"] else []
    remarks += ["transductive"] if found["transductive"] else []
    remarks += ["control"] if found["control"] else []
    return ", ".join(remarks)


def _unlike_others(summary: dict[str, Any]) -> list[str]:
    """What sets the folds of a job apart from those of others under its protocol."""
    what = "validation_sites" if summary["protocol"] == "loso" else "validation_folds"
    usual = getattr(ProtocolSettings, what)
    n = summary.get("protocol_settings", {}).get(what, usual)
    return [] if n == usual else [f"{n or 'no'} {what.replace('_', ' ')[:-1]}{'s' * (n != 1)}"]


def markdown_table(summaries: Sequence[dict[str, Any]], paper: bool = False) -> str:
    """One row for each method of each job: mean ± SD over held-out sites (or folds), in percent.

    Methods come in the order of ``brio methods``. Rows of fewer than three seeds, or of some folds only, are marked as
    smoke runs. With ``paper`` the figures of the paper's main table stand beside ours, where it has the cohort.
    """
    order = {e.name: k for k, e in enumerate(list_methods())}
    said = paper_figures().set_index(["cohort", "method"]).to_dict("index")
    header = ["cohort", "family", "method", "AUC", "95 % interval", "AUC, seeds averaged", "ACC"]
    header += ["paper's AUC", "paper's ACC"] if paper else []
    header += ["folds", "seeds", "epochs", "K", "settings", "provenance", ""]
    rows = []
    for summary in summaries:
        for name, found in summary["methods"].items():
            row = [f"{summary['cohort']} ({summary['n_scans']})", found["family"], name]
            row += [_percent(found["auc"]), _interval(found["auc"]), _percent(found["auc_of_averaged_logits"])]
            row += [_percent(found["acc"])]
            if paper:
                theirs = said.get((summary["cohort"], name)) if summary["protocol"] == "loso" else None
                row += (
                    ["-", "-"] if theirs is None else [f"{theirs[m]:.1f} ± {theirs[m + '_sd']:.1f}" for m in _METRICS]
                )
            row += [str(found["folds"]), str(found["seeds"]), str(found["epochs"] or "-"), str(found["K"] or "-")]
            row += [_settings(found, summary), found["provenance"], _remarks(summary, found)]
            rows.append((summary["cohort"], order.get(name, len(order)), row))
    rows.sort(key=lambda r: r[:2])
    lines = [header, ["---"] * len(header), *(row for _, _, row in rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines) + "\n"


_METRICS = ("auc", "acc")
