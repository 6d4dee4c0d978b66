"""How much each part of qualification contributes to the AUC of BRIO."""

from __future__ import annotations

from .context import Arm, StudyContext, display_name, make_arm
from .study import Finding, register_study
from .summaries import describe_differences, draw_arms, summarise_arms, tidy_rows

PAPERS = ("brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf")
OURS = ("brio-wo-qg", "backbone", "brio-shuffled", "backbone-shuffled")


def _list_arms(context: StudyContext) -> list[Arm]:
    return [make_arm(name) for name in ("brio", *PAPERS, *OURS)]


@register_study(
    "ablation",
    "Contribution of each part of qualification",
    "The full method has a higher AUC and ACC than w/o RS, w/o TR, w/o SM and w/o SF on every dataset. On ABIDE CC200 "
    "w/o RS loses most. The paper reports neither w/o QG, the backbone nor shuffled site names.",
    _list_arms,
    kfold=True,
)
def compare_ablations(context: StudyContext) -> Finding:
    """Compare BRIO with the paper's four ablations of Eqs. (18) and (19), w/o QG, the backbone and shuffled sites."""
    rows = context.collect_rows(_list_arms(context))
    summary = summarise_arms(rows, "brio")
    summary.insert(1, "reported by", ["ours" if name in OURS else "paper" for name in summary["arm"]])
    differences = summary.set_index("arm")["minus brio"]
    n_lower = sum(differences[name] < 0 for name in PAPERS)
    text = [f"BRIO has a higher mean AUC than {n_lower} of the paper's four ablations."]
    text += describe_differences(summary, "brio")
    mean = summary.set_index("arm")["AUC"]
    text.append(
        f"Alignment adds {mean['brio'] - mean['backbone']:+.1f} points to the backbone; where names of source sites "
        f"are shuffled within classes, {mean['brio-shuffled'] - mean['backbone-shuffled']:+.1f}."
    )
    return Finding(tidy_rows(rows), summary, text, lambda: draw_arms(summary, "brio", _label_arm))


def _label_arm(name: str) -> str:
    return f"{display_name(name)} (ours)" if name in OURS else display_name(name)
