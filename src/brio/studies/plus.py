"""How much each part of BRIO plus contributes to its AUC."""

from __future__ import annotations

import pandas as pd

from ..results.format import format_signed
from .arms import Arm, make_arm
from .context import StudyContext
from .figures import draw_arms
from .study import Finding, register_study
from .summaries import describe_differences, summarise_arms, tidy_rows

__all__ = ["compare_plus_parts"]

WHOLE = make_arm("brio-plus")
LINEAR = make_arm("brio-plus", rho=0.0)
PARTS = {
    WHOLE: "BRIO plus",
    LINEAR: "w/o factor kernels",
    make_arm("brio-plus", lambda_re=0.0): "w/o re-estimation penalty",
    make_arm("brio-plus", J=1): "one factor",
    make_arm("brio-plus", view="fc"): "plain correlations",
    make_arm("brio-plus", view="log-0.5"): "logarithm, s = 0.5",
    make_arm("brio-plus", view="log-0.5", rho=0.0, lambda_re=0.0): "log-ridge",
}
"""Arms, and the names that readers see: the whole, then the whole without each part, last without all of them."""


def _list_arms(context: StudyContext) -> list[Arm]:
    return list(PARTS)


@register_study(
    "plus",
    "Contribution of each part of BRIO plus",
    "It does not contain BRIO plus, which takes its factors and its re-estimates and aligns no sites.",
    _list_arms,
    kfold=True,
)
def compare_plus_parts(context: StudyContext) -> Finding:
    """Compare BRIO plus with itself without each of its parts."""
    rows = context.collect_rows(_list_arms(context))
    summary = summarise_arms(rows, WHOLE.name)
    details = pd.concat(
        [context.load_run_details(a, "share_of_factors", "inner_auc").assign(arm=a.name) for a in PARTS],
        ignore_index=True,
    )
    factor_share = 100 * details.groupby("arm")["share_of_factors"].mean()
    inner_auc = 100 * details.groupby("arm")["inner_auc"].mean()
    summary.insert(5, "AUC of inner folds", summary["arm"].map(inner_auc))
    summary.insert(6, "share of factors, %", summary["arm"].map(factor_share))
    names = {a.name: name for a, name in PARTS.items()}
    shown = summary.assign(arm=summary["arm"].map(names)).rename(columns={f"minus {WHOLE.name}": "minus BRIO plus"})
    linear = summary.set_index("arm").loc[LINEAR.name]
    low, high = -linear["difference high"], -linear["difference low"]
    interval = f" (95 % interval {format_signed(low)} to {format_signed(high)})" if low == low else ""
    text = [
        f"The AUC of BRIO plus minus that of BRIO plus without factor kernels is "
        f"{format_signed(-linear[f'minus {WHOLE.name}'])} points{interval}.",
        f"The factors' own kernels explain {factor_share[WHOLE.name]:.0f} % of the variance of its logit.",
    ]
    text += describe_differences(shown, "BRIO plus")
    table = tidy_rows(rows).merge(details, on=["arm", "fold", "seed"], how="left")
    return Finding(table, shown, text, lambda: draw_arms(shown, "BRIO plus"))
