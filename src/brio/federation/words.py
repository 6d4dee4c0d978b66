"""What each number of a request or an answer is, in words, for who must agree to it."""

from __future__ import annotations

import numpy as np

from ..formatting import format_count
from .messages import ALL, Answer, Request

WORDS = {
    "n": "number of scans of each class",
    "features": "sum over the scans of each feature (one for each pair of regions)",
    "live": "number of scans with signal in both regions of a pair",
    "squares": "sum of the squares of all features of all scans",
    "fc_means": "mean connectome of the site",
    "fc_sites": "which pairs of regions have signal in any scan",
    "block_length": "length of the blocks that scans are re-estimated from, in frames, times the number of scans",
    "motion": "number, sum and sum of squares of the logarithm of head motion",
    "edge_sd": "the same of the spread of the connectome of a scan",
    "distance": "the same of the distance of a scan to the mean connectome of all sites",
    "labels": "sum over the scans of each feature times the label; both less their mean",
    "models": "coefficients of a model that was fitted to this site alone, scaled to its share of all scans",
    "product": "sum over the scans of each feature times the margin under the coefficients that are asked about",
    "spread": "how far margins of the two classes lie apart, and how far they vary within a class, under the models "
    "of the other sites: four numbers",
    "direction": "change of the coefficients that would fit this site best, at the coefficients so far",
    "covariance": "sum over the scans of each feature times the margin of the final model",
    "variance": "sum of the squares of these margins",
    "halves": "how far margins move between halves of a scan, relative to re-estimates, and the number of scans",
}
FACTS = {
    "frames": "tenth smallest and tenth largest number of frames",
    "tr": "tenth smallest and tenth largest repetition time",
    "dead_rois": "tenth smallest and tenth largest number of regions without signal",
    "n_controls": "number of controls that were scored",
    "n_patients": "number of patients that were scored",
    "auc": "AUC at this site of a model that has not seen it",
    "variance": "variance of this AUC over participants",
    "quantiles": "quantiles of the margins, those with ten participants or more beyond",
    "n_right": "how many were predicted right",
    "brier": "sum of the squared errors of the probabilities",
    "calibration": "slope and intercept by which the log-odds would fit the labels, with their standard errors",
    "spread": "how far margins of the two classes lie apart, and how far they vary within a class",
}


def describe_message(message: Request | Answer) -> list[str]:
    """Describe a request or an answer: every number that it holds."""
    if isinstance(message, Request):
        terms, rounds = message.terms, message.shown
        lines = [
            f"Request {message.round + 1} of {len(terms.rounds)} of the project '{terms.project}': {terms.method}, "
            f"{len(terms.rois['name'])} regions ({terms.atlas}), {terms.classes[1]} against {terms.classes[0]}, "
            f"evaluation by {terms.evaluation}.",
        ]
        lines += [f"Sites: {', '.join(f'{name} ({a} and {b})' for name, (a, b) in message.sites.items())}."] * bool(
            message.sites
        )
        for model, own in rounds.items():
            whose = "all sites" if model == ALL else f"all sites but {model}"
            held = dict.fromkeys(name for sums in own for name in sums)
            lines.append(f"- sums over {whose}: {', '.join(held)}" if model != ALL else f"- sums over {whose}:")
            lines += [f"  - `{name}`: {WORDS[name]}" for name in held if model == ALL and name in WORDS]
        return [*lines, f"Asked of each site: {_ASKED[message.asked]}"]
    lines = [f"Answer {message.round + 1} of site '{message.site}' to request {message.request[:12]}:"]
    for model, own in message.sums.items():
        about = (
            ""
            if model == ALL or len(message.sums) == 1
            else f", for {'all sites' if model == ALL else 'all but ' + model}"
        )
        lines += [f"- `{name}`, {_count(values)}{about}: {WORDS.get(name, 'unknown')}" for name, values in own.items()]
    return lines + [f"- `{name}` = {value}: {FACTS.get(name, 'unknown')}" for name, value in message.facts.items()]


_ASKED = {
    "describe": "counts, means and spreads of its scans.",
    "begin": "the products of its features with the labels, and a model of the site alone.",
    "multiply": "the products of its scans with a vector that follows from the sums above.",
    "solve": "the change of the coefficients that would fit the site best.",
    "score": "what the final model reads of its scans, and the scores of a model that has not seen the site.",
}


def _count(values: np.ndarray) -> str:
    return format_count(values.size, "number") if values.size else "nothing"
