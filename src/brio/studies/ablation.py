"""What each part of qualification is worth."""

from __future__ import annotations

from .arms import Arm, arm, display_name
from .context import StudyContext
from .study import Finding, study
from .summaries import describe_differences, draw_arms, summarise_arms, tidy_rows

__all__ = ["ablation"]

PAPERS = ("brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf")
OURS = ("brio-wo-qg", "backbone")


def _arms(context: StudyContext) -> list[Arm]:
    return [arm(name) for name in ("brio", *PAPERS, *OURS)]


@study(
    "ablation",
    "What each part of qualification is worth",
    "the full method is ahead of w/o RS, w/o TR, w/o SM and w/o SF in AUC and ACC on every dataset; w/o RS loses "
    "most on ABIDE CC200. w/o QG and the backbone are rows of ours.",
    _arms,
)
def ablation(context: StudyContext) -> Finding:
    """The paper's four ablations of Eqs. (18) and (19) against the full method; w/o QG and the backbone are ours."""
    rows = context.rows(_arms(context))
    summary = summarise_arms(rows, "brio")
    summary.insert(1, "row", ["ours" if a in OURS else "paper's" for a in summary["arm"]])
    differences = summary.set_index("arm")["to brio"]
    ahead = [a for a in PAPERS if differences[a] < 0]
    text = [f"BRIO has the higher mean AUC against {len(ahead)} of the paper's four ablations."]
    text += describe_differences(summary, "brio")
    return Finding(tidy_rows(rows), summary, text, lambda: draw_arms(summary, "brio", _label))


def _label(name: str) -> str:
    return f"{display_name(name)} (ours)" if name in OURS else display_name(name)
