"""The main table: all methods at sites they have not seen."""

from __future__ import annotations

from collections.abc import Collection

from ..methods import list_methods
from .arms import Arm, arm, printed
from .bench import Bench
from .study import Finding, study
from .summaries import arm_summary, draw_arms, in_words, tidy

__all__ = ["compared", "comparison", "ranked", "reference_of", "without"]


def compared(bench: Bench, protocol: str = "loso") -> list[Arm]:
    """Arms of a comparison of methods: those asked for, or all that the cohort can feed but variants of another one."""
    names = bench.methods or bench.fed([e.name for e in list_methods() if not e.fixed and not e.file])
    return [arm(name, protocol, tuned=True) for name in names]


def without(bench: Bench, names: Collection[str] | None = None) -> list[str]:
    """Which methods (of some) are left out and why, a sentence each."""
    return [f"Left out: {why}." for name, why in bench.left_out.items() if names is None or name in names]


def reference_of(arms: list[Arm]) -> str:
    """What the others are compared with: BRIO where it takes part, else the first."""
    names = [a.name for a in arms]
    return "brio" if "brio" in names else names[0]


def ranked(bench: Bench, arms: list[Arm]) -> Finding:
    """The arms by mean AUC, each paired with the reference."""
    reference = reference_of(arms)
    rows = bench.rows(arms)
    summary = arm_summary(rows, reference).sort_values("AUC", ascending=False).reset_index(drop=True)
    best = summary.iloc[0]
    interval = f" ({best['low']:.1f} to {best['high']:.1f})" if best["low"] == best["low"] else ""
    spread = f", SD {best['SD']:.1f}" if best["SD"] == best["SD"] else ""
    text = [f"Highest mean AUC: {best['arm']}, {best['AUC']:.1f}{interval}{spread}."]
    text += in_words(summary, reference) if len(arms) > 1 else []
    text += _tuned(bench, arms)
    text += without(bench)
    return Finding(tidy(rows), summary, text, lambda: draw_arms(summary, reference))


def _tuned(bench: Bench, arms: list[Arm]) -> list[str]:
    """Whose settings were chosen on validation scans, where some were."""
    names = [printed(a.name) for a in arms if bench.finished(a).tuned]
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
def comparison(bench: Bench) -> Finding:
    """Main table: leave one site out, all methods, mean and SD over sites."""
    return ranked(bench, compared(bench))
