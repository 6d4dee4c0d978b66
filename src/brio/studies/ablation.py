"""What each part of qualification is worth."""

from __future__ import annotations

from .arms import Arm, arm, printed
from .bench import Bench
from .study import Finding, study
from .summaries import arm_summary, draw_arms, in_words, tidy

__all__ = ["ablation"]

PAPERS = ("brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf")
OURS = ("brio-wo-qg", "backbone")


def _arms(bench: Bench) -> list[Arm]:
    return [arm(name) for name in ("brio", *PAPERS, *OURS)]


@study(
    "ablation",
    "What each part of qualification is worth",
    "the full method is ahead of w/o RS, w/o TR, w/o SM and w/o SF in AUC and ACC on every dataset; w/o RS loses "
    "most on ABIDE CC200. w/o QG and the backbone are rows of ours.",
    _arms,
)
def ablation(bench: Bench) -> Finding:
    """The paper's four ablations of Eqs. (18) and (19) against the full method; w/o QG and the backbone are ours."""
    rows = bench.rows(_arms(bench))
    summary = arm_summary(rows, "brio")
    summary.insert(1, "row", ["ours" if a in OURS else "paper's" for a in summary["arm"]])
    differences = summary.set_index("arm")["to brio"]
    ahead = [a for a in PAPERS if differences[a] < 0]
    text = [f"BRIO has the higher mean AUC against {len(ahead)} of the paper's four ablations."]
    text += in_words(summary, "brio")
    return Finding(tidy(rows), summary, text, lambda: draw_arms(summary, "brio", _label))


def _label(name: str) -> str:
    return f"{printed(name)} (ours)" if name in OURS else printed(name)
