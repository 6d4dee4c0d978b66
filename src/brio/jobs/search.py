"""Tuning: the same number of configurations for every method, chosen on validation scans inside each fold."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..errors import BrioError
from ..methods import find_method, make_method
from ..settings import require
from ..spaces import draw_configurations
from ..training import Method
from .execute import Result, execute, settled
from .plan import Candidates, all_asked, described, method_settings, named, split_settings
from .prepare import Prepared, prepare
from .resume import earlier_plan
from .store import write_atomically
from .train import train
from .tuned import TUNING, Tuned

__all__ = ["tune"]

SEARCH = "search"


def tune(
    cohort: Cohort | str | Path,
    methods: Sequence[str] | str,
    *,
    out: str | Path,
    budget: int = 4,
    oracle: bool = False,
    **words: Any,
) -> Result:
    """Try configurations of methods, choose one for each fold, and evaluate the choice with all seeds.

    Every configuration is trained with seed 0 on every fold; the one with the best AUC on the fold's validation scans
    is chosen for that fold, the default where they tie. The test scans of a fold choose nothing. The first
    configuration is the default, the others are drawn from the method's spaces (``brio methods NAME``).

    Parameters
    ----------
    cohort, methods, words
        As for :func:`brio.run`. Settings that are given are not tuned.
    out : path
        ``tuning.json`` and ``configurations.csv`` hold the search, the rest is as :func:`brio.run` leaves it.
    budget : int
        Configurations for each method and fold. A method with nothing to tune is run as it is.
    oracle : bool
        Also write what each configuration reached on the test scans, and what choosing by them would have: an upper
        bound that no honest choice can promise, never used for anything.
    """
    require(budget >= 1, "budget", budget, "at least 1")
    names = named(methods)
    method_settings(names, split_settings(dict(words.get("settings") or {}))[""])
    folder = Path(out)
    if not (folder / SEARCH / "plan.json").is_file() and earlier_plan(folder) is not None:
        raise BrioError(f"{folder}: belongs to another job, not to a search; choose another --out")
    if words.get("protocol") == "kfold" and words.get("seeds", 1) > 1:
        raise BrioError(
            "under k-fold another seed deals other scans to a fold, so test scans would choose settings; tune with "
            "--seeds 1, or with --protocol loso"
        )
    prepared = prepare(cohort, **words)
    names = prepared.fed(names) if all_asked(methods) else names
    drawn = {name: _drawn(name, prepared.of_methods, budget) for name in names}
    for name, tried in drawn.items():
        if len(tried) == 1 < budget:
            prepared.say(f"method '{name}' has nothing to tune and is run with the settings it has")
    tuned = _search(prepared, drawn, folder, budget, oracle)
    return execute(prepared, names, folder, tuned)


def _drawn(name: str, values: dict[str, Any], budget: int) -> list[tuple[dict[str, Any], Method]]:
    """The configurations of a method: values of its tuned settings, and the method with them."""
    given = {k: v for k, v in values.items() if k in _fields(name) and k not in find_method(name).fixed}
    tried = draw_configurations(make_method(name, given).settings, budget, {**find_method(name).fixed, **given})
    return [(values, make_method(name, {**given, **values})) for values in tried]


def _fields(name: str) -> set[str]:
    return {f.name for f in dataclasses.fields(find_method(name).method_class.Settings)}


def _search(
    prepared: Prepared,
    drawn: dict[str, list[tuple[dict[str, Any], Method]]],
    folder: Path,
    budget: int,
    oracle: bool,
) -> Tuned:
    """Train every configuration with seed 0 and choose one for each fold."""
    plan = prepared.plan(
        {name: {**described(tried[0][1]), "configurations": [v for v, _ in tried]} for name, tried in drawn.items()},
        {name: _all(tried) for name, tried in drawn.items()},
        [0],
    )
    place = folder / SEARCH
    begun = (folder / "plan.json").is_file()  # until then the job would take up the search's runs on another device
    with settled(prepared, plan, place, anywhere=begun) as (plan, store):
        train(prepared, plan, store, searching=True)
        number = {
            json.dumps(_values(method), sort_keys=True): (name, k, values)
            for name, tried in drawn.items()
            for k, (values, method) in enumerate(tried)
        }
        rows = []
        for key, job in plan.jobs.items():
            name, k, values = number[json.dumps(_values(job.method), sort_keys=True)]
            row = store.record(key)["row"]
            rows.append(
                {
                    "method": name,
                    "fold": job.run.fold.name,
                    "configuration": k,
                    "values": json.dumps(values, sort_keys=True),
                    "validation_auc": row["validation_auc"],
                    **({"test_auc": row["auc"]} if oracle else {}),
                }
            )
    table = pd.DataFrame(rows)
    choices = {name: _chosen(table[table["method"] == name], tried) for name, tried in drawn.items()}
    table["chosen"] = [choices[r.method][r.fold] == json.loads(r.values) for r in table.itertuples(index=False)]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "configurations.csv", table.to_csv(index=False, lineterminator="\n"))
    tuned = Tuned(
        budget,
        prepared.used.name,
        prepared.used.atlas.name,
        prepared.protocol_facts,
        {job.run.fold.name: list(job.run.fold.validation_sites) for job in plan.jobs.values()},
        dict(prepared.of_methods),
        {name: len(tried) for name, tried in drawn.items()},
        choices,
        place / "runs",
    )
    document = tuned.document | ({"oracle": _oracle(table)} if oracle else {})
    write_atomically(folder / TUNING, json.dumps(document, indent=1) + "\n")
    return tuned


def _values(method: Method) -> list[Any]:
    """Name and settings of a method, to compare it by."""
    return [method.name, described(method)]


def _all(tried: list[tuple[dict[str, Any], Method]]) -> Candidates:
    return lambda fold: [method for _, method in tried]


def _chosen(table: pd.DataFrame, tried: list[tuple[dict[str, Any], Method]]) -> dict[str, dict[str, Any]]:
    """Values of the configuration with the best validation AUC, for each fold; the first where they tie."""
    out = {}
    for fold, rows in table.groupby("fold", sort=True):
        ordered = rows.sort_values("configuration")
        scores = ordered["validation_auc"].to_numpy(dtype=float)
        if np.isnan(scores).all():
            raise BrioError(f"fold {fold}: no configuration has a score on the validation scans")
        out[str(fold)] = tried[int(ordered["configuration"].iloc[int(np.nanargmax(scores))])][0]
    return out


def _oracle(table: pd.DataFrame) -> dict[str, float]:
    """Mean over folds of the best test AUC of any configuration, by method."""
    best = table.groupby(["method", "fold"])["test_auc"].max()
    return {str(name): float(value) for name, value in best.groupby("method").mean().items()}
