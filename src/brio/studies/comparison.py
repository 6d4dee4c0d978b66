"""The main table: all methods at sites they have not seen."""

from __future__ import annotations

from collections.abc import Collection

from ..methods import list_methods
from .arms import Arm, arm, display_name
from .context import StudyContext
from .study import Finding, study
from .summaries import describe_differences, draw_arms, summarise_arms, tidy_rows

__all__ = ["compared", "comparison", "ranked", "reference_of", "without"]


def compared(context: StudyContext, protocol: str = "loso") -> list[Arm]:
    """Arms of a comparison of methods: those asked for, or all that the cohort can feed but variants of another one."""
    names = context.methods or context.runnable_methods([e.name for e in list_methods() if not e.fixed and not e.file])
    return [arm(name, protocol, tuned=True) for name in names]


def without(context: StudyContext, names: Collection[str] | None = None) -> list[str]:
    """Which methods (of some) are left out and why, a sentence each."""
    return [f"Left out: {why}." for name, why in context.left_out.items() if names is None or name in names]


def reference_of(arms: list[Arm]) -> str:
    """What the others are compared with: BRIO where it takes part, else the first."""
    names = [a.name for a in arms]
    return "brio" if "brio" in names else names[0]


def ranked(context: StudyContext, arms: list[Arm]) -> Finding:
    """The arms by mean AUC, each paired with the reference."""
    reference = reference_of(arms)
    rows = context.rows(arms)
    summary = summarise_arms(rows, reference).sort_values("AUC", ascending=False).reset_index(drop=True)
    best = summary.iloc[0]
    interval = f" ({best['low']:.1f} to {best['high']:.1f})" if best["low"] == best["low"] else ""
    spread = f", SD {best['SD']:.1f}" if best["SD"] == best["SD"] else ""
    text = [f"Highest mean AUC: {best['arm']}, {best['AUC']:.1f}{interval}{spread}."]
    text += describe_differences(summary, reference) if len(arms) > 1 else []
    text += _tuned(context, arms)
    text += without(context)
    return Finding(tidy_rows(rows), summary, text, lambda: draw_arms(summary, reference))


def _tuned(context: StudyContext, arms: list[Arm]) -> list[str]:
    """Whose settings were chosen on validation scans, where some were."""
    names = [display_name(a.name) for a in arms if context.results_of(a).summary.is_tuned]
    if not names:
        return []
    rest = "" if len(names) == len(arms) else "; the others have their own"
    return [f"Settings of {', '.join(names)} were chosen on validation scans{rest}."]


@study(
    "comparison",
    "All methods at unseen sites",
    "BRIO outperforms all baselines on every dataset; general OOD methods are not consistently better than GNNs, and "
    "the best brain network methods are better than graph OOD methods. Linear models are not in its table.",
    compared,
)
def comparison(context: StudyContext) -> Finding:
    """Main table: leave one site out, all methods, mean and SD over sites."""
    return ranked(context, compared(context))
