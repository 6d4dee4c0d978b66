"""Check a folder of results from its predictions alone, with the code that made it; train some of its runs again.

Every table and page that follows from ``predictions.csv``, the plan and the records of the runs is made again in memory
and compared, value by value, with the file that is there. Nothing is written to the folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from . import results
from .cohort import Cohort, relabel
from .cohort.covariates import ClassNames
from .device import resolve_device
from .draws import addresses, draw_uniform
from .errors import BrioError
from .formatting import format_count, format_table
from .jobs import JobSpec
from .jobs.job import Job, estimate_once
from .jobs.plan import JobPlan, PlannedRun, run_key
from .methods.registry import restore_method
from .protocol import ProtocolSettings, make_folds
from .protocol.metrics import ONE_CLASS, count_participants
from .report.comparisons import markdown_table
from .report.evidence import count_alike, read_evidence, read_job
from .report.html.page import render_page
from .report.write import CARD, PAGE, write_model_card
from .results import METRICS, Plan, RunRecord, RunRow, RunStore, StoredJob, files
from .results.cohort import read_audit, read_cohort_facts, read_groups
from .results.job import DIVERGED, read_predictions, read_results
from .results.records import TuningRecord
from .schemas import MAX_PARTICIPANT_TABLE_BYTES, parse_json, parse_table, read_bounded, show_value, to_json
from .storage import SUMS, hash_file, open_scratch_folder, read_sums
from .version import __version__

TOLERANCE = 1e-9
"""Relative difference up to which stored numbers are the same; printed ones are the same to the last digit."""
RETRAINED, RETRAINED_NETWORK = 1e-6, 1e-3
"""Difference up to which margins of a run that is trained again are the same, in standard deviations of its margins."""
MOST_SHOWN = 50
"""Differences of one kind that are named; further ones are counted."""
TABLE = "table.md"
NOT_CHECKED = """\
that predictions come from the scans, and labels and sites from the participants (--cohort, --again)
what only training knows, such as epochs, validation AUC, block length, seconds, device and source sites: results.csv \
is compared with the records of runs, which may have been changed alike
weights, audit.json, facts.json, groups.csv, exclusions.tsv, the search of 'brio tune', tables and figures of studies: \
only their hashes; sites.png: not at all
whether somebody made all of the folder up, so that every number fits"""


@dataclass
class Verification:
    """How many values of each kind were compared, where they differ, and what was not checked."""

    counts: dict[str, int] = field(default_factory=dict)
    differences: dict[str, list[str]] = field(default_factory=dict)
    not_checked: list[str] = field(default_factory=NOT_CHECKED.splitlines)

    def compare(
        self,
        kind: str | Callable[[str], str],
        place: object,
        pair: Iterable[Mapping[str, str]],
        tolerance: float = TOLERANCE,
        scale: float | None = None,
    ) -> None:
        """Compare stored and recomputed texts by their names; numbers may differ by a tolerance of a scale."""
        stored, made = pair
        for name in dict.fromkeys([*stored, *made]):
            one, other, what = stored.get(name), made.get(name), kind if isinstance(kind, str) else kind(name)
            self.counts[what] = self.counts.get(what, 0) + 1
            if one != other and not _are_close(one, other, tolerance, scale):
                shown = ["nothing" if text is None else show_value(text).strip("'") for text in (one, other)]
                line = f"{place}{name}: stored {shown[0]}, recomputed {shown[1]}"
                self.differences.setdefault(what, []).append(line)

    def write(self) -> str:
        """Write a line for each kind, the differences, and what was not checked."""
        rows = [[kind, f"{n:,}", f"{len(self.differences.get(kind, [])):,}"] for kind, n in self.counts.items()]
        parts = [format_table(["compared", "values", "differ"], rows)]
        for kind, lines in self.differences.items():
            more = [f"and {len(lines) - MOST_SHOWN:,} more"] if len(lines) > MOST_SHOWN else []
            parts.append("\n- ".join([f"Differ: {kind}", *lines[:MOST_SHOWN], *more]))
        total = format_count(sum(map(len, self.differences.values())), "value differs", "values differ")
        ending = f"{total}." if self.differences else "Everything that was compared agrees."
        return "\n\n".join([*parts, "\n- ".join(["Not checked:", *self.not_checked]), ending]) + "\n"


def _are_close(one: str | None, other: str | None, tolerance: float, scale: float | None) -> bool:
    try:
        a, b = float(one or ""), float(other or "")
    except ValueError:
        return False
    return abs(a - b) <= max(tolerance * (max(abs(a), abs(b)) if scale is None else scale), 1e-15)


def _read_text(path: Path) -> str:
    """Read the text of a file, whatever its hash is; empty where there is none."""
    return read_bounded(path, MAX_PARTICIPANT_TABLE_BYTES).decode(errors="replace") if path.exists() else ""


def _read_cells(text: str, path: Path) -> dict[str, str]:
    """Return the cells of a csv text by line and column."""
    if not text:
        return {}
    table = parse_table(text.encode(), path, text_columns=text.partition("\n")[0].split(",")).astype(object).fillna("")
    return {f", line {k}, {name}": str(cell) for name in table for k, cell in enumerate(table[name], 2)}


def _flatten(document: Any, name: str = "") -> dict[str, str]:
    """Return the values of a JSON document by their keys."""
    if isinstance(document, dict | list | tuple) and document:
        items = document.items() if isinstance(document, dict) else enumerate(document)
        return {place: text for key, value in items for place, text in _flatten(value, f"{name}.{key}").items()}
    return {name: document if isinstance(document, str) else json.dumps(document)}


def _split_words(text: str) -> dict[str, str]:
    """Return the numbers and other words of a text by line; what a picture is made of counts as one word."""
    text = re.sub(r"[\w+/=]{400,}", lambda blob: f"picture-{hashlib.sha256(blob[0].encode()).hexdigest()[:8]}", text)
    words = (re.findall(r"\d+(?:[.,]\d+)*|[^\d\s]+", line) for line in text.split("\n"))
    return {f", line {k}, word {j}": word for k, line in enumerate(words, 1) for j, word in enumerate(line, 1)}


def _name_value(name: str) -> str:
    """Name the kind of a value of ``summary.json`` by its key."""
    kinds = {r"interval(_over_people)?(\.|$)": "intervals", r"\.p_chance$": "tests against chance"}
    kinds |= {r"\.(mean|sd|pair_weighted_auc)$": "means and SDs", "": "counts and facts"}
    return f"{next(kind for key, kind in kinds.items() if re.search(key, name))} ({files.SUMMARY})"


def _name_cell(name: str) -> str:
    """Name the kind of a cell of ``results.csv`` by its column."""
    return f"{'scores' if name.rpartition(', ')[2] in METRICS else 'other facts'} of runs ({files.RESULTS})"


# ---------------------------------------------------------------- a job, without its cohort


def _check_hashes(found: Verification, folder: Path) -> None:
    sums = read_sums(folder, "ask for a whole copy of the folder")
    listed = sums.listed if sums else {}
    now = {name: hash_file(folder / name) if (folder / name).is_file() else "no file" for name in listed}
    found.compare(f"hashes of files ({SUMS})", f"{folder}/", (listed, now))


def _read_records(found: Verification, folder: Path, plan: Plan) -> dict[str, RunRecord]:
    """Read the records of a job by their keys, which are checked; none where they were left out."""
    store, planned, keys = RunStore(folder / files.RUNS), [key for stack in plan.stacks for key in stack], {}
    if not store.folder.is_dir():
        found.not_checked.append(f"predictions, against the records of runs: there is no {store.folder}")
        return {}
    records = {path.name: store.read_record(path.name) for path in sorted(store.folder.iterdir()) if path.is_dir()}
    for key, record in records.items():
        row, method = record.row, plan.methods.get(record.row.method)
        keys[key] = run_key(plan, row.method, record.settings, row.fold, row.seed) if method else row.method
        if method and not method.tuned:
            settings = (_flatten(to_json(one)) for one in (record.settings, method.settings))
            found.compare("settings of runs (run.json, plan.json)", store.folder / key / files.RECORD, settings)
    found.compare("keys of runs (run.json, plan.json)", f"{store.folder}/", ({key: key for key in planned}, keys))
    return {key: records[key] for key in planned if key in records}


def _compare_table(found: Verification, path: Path, made: pd.DataFrame, kind: str | Callable[[str], str]) -> None:
    """Compare a table with what it should hold; one without rows is not written."""
    text = files.format_csv(made) if len(made) else ""
    found.compare(kind, path, (_read_cells(one, path) for one in (_read_text(path), text)))


def _score_again(row: RunRow, plan: Plan, part: pd.DataFrame) -> dict[str, Any]:
    """Compute all of a row of a run that follows from its predictions and the plan."""
    scores, notes = results.score_run(*(part[name].to_numpy(dtype=float) for name in ("label", "margin", "logit")))
    notes += [note for note in (row.note or "").split("; ") if note not in ("", DIVERGED, ONE_CLASS)]
    facts = {"cohort": plan.cohort, "protocol": plan.protocol, "n_test": len(part), "note": "; ".join(notes)}
    return scores | facts | {"test_sites": ";".join(sorted(set(part["site"].fillna(""))))}


def _verify_job(found: Verification, folder: Path) -> tuple[StoredJob, dict[str, RunRecord]]:
    """Compare the files of a job with what follows from its predictions; returns the job as recomputed."""
    plan, predictions = Plan.read(folder), read_predictions(folder)
    if predictions is None:
        raise BrioError(f"{folder}: has no {files.PREDICTIONS}, from which all else follows; ask for a finished job")
    records = _read_records(found, folder, plan)
    rows = [record.row for record in records.values()]
    if not records:  # what does not follow from predictions is taken from the table
        known = read_results(folder).astype(object)
        rows = [RunRow(**row) for row in known.where(known.notna(), None).to_dict("records")]
    made = results.prediction_rows(list(records.values())) if records else predictions.copy()
    made["probability"] = 0.5 * (1.0 + np.tanh(0.5 * made["logit"].astype(float)))
    _compare_table(found, folder / files.PREDICTIONS, made, "predictions (run.json)")
    parts = dict(iter(predictions.groupby(["method", "fold", "seed"], sort=False)))
    scored = [_score_again(row, plan, parts.get((row.method, row.fold, row.seed), predictions[:0])) for row in rows]
    for key, record, own in zip(records, records.values(), scored, strict=False):
        stored = {name: getattr(record.row, name) for name in own}
        found.compare("scores of runs (run.json)", folder / files.RUNS / key, map(_flatten, (stored, own)))
    table = results.result_rows(replace(row, **own) for row, own in zip(rows, scored, strict=True))
    _compare_table(found, folder / files.RESULTS, table, _name_cell)
    for name, make in ((files.SITES, results.site_rows), (files.COVARIANCES, results.covariance_rows)):
        _compare_table(found, folder / name, make(predictions, plan.protocol), f"scores of sites ({name})")
    settings = {name: method.settings for name, method in plan.methods.items()}
    settings |= {r.row.method: r.settings for r in records.values() if r.row.method in settings}
    cohort_facts = read_cohort_facts(folder) or {}
    is_sex = ClassNames(*cohort_facts.get("classes", ())).are_sexes or count_alike(cohort_facts.get("sites", []))
    facts = {name: restore_method(name, values).facts for name, values in settings.items()}
    summary = results.summarise(plan, table, predictions, facts, is_sex)
    document = parse_json(_read_text(folder / files.SUMMARY).encode(), folder / files.SUMMARY)
    found.compare(_name_value, folder / files.SUMMARY, map(_flatten, (document, to_json(summary))))
    if (folder / TABLE).is_file():
        words = map(_split_words, (_read_text(folder / TABLE), markdown_table([summary])))
        found.compare(f"printed ({TABLE})", folder / TABLE, words, tolerance=0)
    of_cohort = (read_audit(folder), read_cohort_facts(folder), read_groups(folder))
    tuning = TuningRecord.read(folder) if files.is_kept(folder / files.TUNING) else None
    return StoredJob(folder, summary, table, plan, predictions, *of_cohort, tuning), records


def _verify_pages(found: Verification, folder: Path, jobs: Mapping[Path, StoredJob]) -> None:
    """Compare the report and the model card with those of the recomputed jobs."""
    evidence = read_evidence(folder, lambda place: jobs.get(place) or read_job(place))
    for name, write in ((PAGE, render_page), (CARD, write_model_card)):
        text = _read_text(folder / name)
        writer = re.search(r'(?:Written by |name="generator" content=")brio (\S+?)[\s"]', text)
        if writer and writer[1] == __version__:
            words = map(_split_words, (text, write(evidence)))
            found.compare(f"printed ({name})", folder / name, words, tolerance=0)
        else:
            why = f"was written by brio {writer[1]}, and this is {__version__}" if writer else "is not there"
            found.not_checked.append(f"{name}, which {why}")


# ---------------------------------------------------------------- with the cohort


def _verify_cohort(
    found: Verification, job: StoredJob, records: Mapping[str, RunRecord], cohort: Cohort
) -> tuple[Cohort, dict[str, PlannedRun]]:
    """Compare a job with its cohort; returns the scans that it uses, and its runs ready to be trained."""
    from .training import Run

    plan, predictions = job.require_plan(), pd.DataFrame(job.predictions)
    whole = cohort if plan.label is None else relabel(cohort, plan.label, (plan.audit or {}).get("min_class", 0))
    used = whole.select(np.array([name not in plan.excluded for name in whole.ids]))
    stored = {".fingerprint_before_exclusions": plan.fingerprint_before_exclusions, ".fingerprint": plan.fingerprint}
    here = dict(zip(stored, (whole.fingerprint, used.fingerprint), strict=True))
    found.compare("fingerprints of the cohort (plan.json)", job.folder / files.PLAN, (stored, here))
    if stored != here:
        found.not_checked.append(f"labels, sites and runs of {job.folder}, since {cohort.name} is another cohort")
        return used, {}
    settings, planned = ProtocolSettings(**plan.protocol_settings), {}
    folds = {(f.name, seed): f for seed in plan.seeds for f in make_folds(used, plan.protocol, seed, settings)}
    for (method, name, seed), part in predictions.groupby(["method", "fold", "seed"], sort=False):
        test = folds[name, seed].test
        people = zip(used.participant_ids[test], used.sites[test], used.labels[test], strict=True)
        own = part[["participant_id", "site", "label"]].fillna("").itertuples(index=False, name=None)
        texts = ({str(who): f"{site}, {label}" for who, site, label in one} for one in (own, people))
        place = f"{job.folder / files.PREDICTIONS}, {method}, fold {name}, seed {seed}, participant "
        found.compare("ids, sites and labels (cohort)", place, texts)
    for key, record in records.items():
        row, one = record.row, restore_method(record.row.method, record.settings)
        fold = folds[row.fold, row.seed]
        learned, planned[key] = one.training_scans(used, fold), PlannedRun(one, Run(fold, row.seed), key)
        made = {"n_source": count_participants(used, learned), "validation_sites": ";".join(fold.validation_sites)}
        made |= {"n_validation": count_participants(used, fold.validation)}
        values = ({name: getattr(row, name) for name in made}, made)
        found.compare("parts of folds (cohort)", job.folder / files.RUNS / key, map(_flatten, values))
    return used, planned


def _train_again(
    found: Verification,
    job: StoredJob,
    used: Cohort,
    planned: dict[str, PlannedRun],
    drawn: set[str],
    device: str | None,
) -> None:
    """Train runs of a job again and compare their margins; networks with the whole stack that they were trained in.

    The last bits of a network follow those that are trained beside it, and training magnifies them.
    """
    from .jobs.train import train_stack

    plan = job.require_plan()
    stacks: dict[tuple[str, ...], bool] = {}
    for stack in plan.stacks:
        is_network = planned[stack[0]].method.facts.epochs is not None
        own = [key for key in stack if key in drawn]
        stacks |= dict.fromkeys([stack] if is_network and own else [(key,) for key in own], is_network)
    harmonise = {f"harmonise.{name}": value for name, value in (plan.harmonise or {}).items()}
    spec = JobSpec(used, settings=harmonise, device=device or plan.device, checkpoint_every=0)
    compute = resolve_device(spec.device)
    again = Job(spec, used, used, None, compute, estimate_once(used, compute.torch_device))
    job_plan = JobPlan(replace(plan, stacks=tuple(stacks)), planned)
    with open_scratch_folder() as scratch:
        store = RunStore(scratch / files.RUNS, records_only=True)
        for number, (stack, is_network) in enumerate(stacks.items(), 1):
            method = planned[stack[0]].method
            if method.version != plan.methods[method.name].version:
                raise BrioError(f"'{method.name}' has another version here; use brio {plan.brio} to train it again")
            train_stack(again, job_plan, number, store)
            kind, tolerance = ("networks", RETRAINED_NETWORK) if is_network else ("other methods", RETRAINED)
            for key in stack:
                both = [one.read_record(key).predictions for one in (job.store, store)]
                margins = (_flatten(dict(zip(one.participant_id, one.margin or (), strict=False))) for one in both)
                scale = float(np.std(both[0].margin or 0.0))
                place = f"{job.folder / files.RUNS / key}, {method.name}, participant "
                found.compare(f"margins of runs trained again ({kind})", place, margins, tolerance, scale)


def verify_folder(
    folder: Path, cohort: Path | None = None, again: int = 0, seed: int = 0, device: str | None = None
) -> Verification:
    """Check a folder of ``brio run``, ``brio tune`` or ``brio study``.

    With its cohort, labels and sites are compared too, and some runs, drawn by a seed, are trained again.
    """
    files.require_folder(folder)
    plans = [folder / files.PLAN] if (folder / files.PLAN).is_file() else folder.glob(f"arms/*/*/{files.PLAN}")
    found, jobs = Verification(), {}
    for sums in sorted(folder.rglob(SUMS)):
        _check_hashes(found, sums.parent)
    try:
        for path in sorted(plans):
            jobs[path.parent] = _verify_job(found, path.parent)
        _verify_pages(found, folder, {place: job for place, (job, _) in jobs.items()})
    except BrioError as error:
        if not found.differences:
            raise
        found.not_checked.append(f"everything from here on: {error}")
        return found
    if cohort is None:
        return found
    loaded = Cohort.load(cohort)
    loaded.verify()
    checked = [(job, *_verify_cohort(found, job, records, loaded)) for job, records in jobs.values()]
    keys = [key for *_, planned in checked for key in planned]
    drawn = {keys[k] for k in np.argsort(draw_uniform(seed, "verify", addresses(keys)))[:again]}
    for job, used, planned in checked:
        if drawn & planned.keys():
            _train_again(found, job, used, planned, drawn, device)
    return found
