"""Predictions of methods with planted effects, for the same participants at three sites."""

import numpy as np
import pandas as pd

SIZES = {"s1": (12, 15), "s2": (20, 9), "s3": (30, 30)}


def make_predictions(effects, seeds=3, sizes=SIZES, seed=0):
    """Predictions of methods whose margins differ by an effect between classes, for the same participants."""
    rng = np.random.default_rng(seed)
    rows = []
    for fold, (n_patients, n_controls) in sizes.items():
        label = np.repeat([1, 0], [n_patients, n_controls])
        person = rng.standard_normal(len(label))
        for method, effect in effects.items():
            for one in range(seeds):
                margin = effect * label + person + 0.5 * rng.standard_normal(len(label))
                ids = [f"{fold}-{k}" for k in range(len(label))]
                row = {"method": method, "fold": fold, "seed": one, "participant_id": ids, "site": fold}
                rows.append(pd.DataFrame(row | {"label": label, "margin": margin}))
    table = pd.concat(rows, ignore_index=True)
    return table.assign(logit=table["margin"], probability=1 / (1 + np.exp(-table["margin"])))
