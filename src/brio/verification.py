"""Check a folder of results: recompute all that follows from its predictions in memory, and compare by value."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from . import results
from .cohort import Cohort, relabel
from .device import resolve_device
from .draws import addresses, draw_uniform
from .errors import BrioError
from .formatting import format_count, format_table
from .jobs import JobSpec
from .jobs.job import Job, estimate_once
from .jobs.plan import JobPlan, PlannedRun, run_key
from .methods.registry import restore_method
from .models.external import read_validation
from .protocol import ProtocolSettings, make_folds
from .protocol.metrics import ONE_CLASS, count_participants
from .report.comparisons import markdown_table
from .report.evidence import read_evidence, read_job
from .report.write import PAGE, format_report, read_writer
from .results import Plan, RunRecord, RunRow, RunStore, StoredJob, files
from .results.cohort import read_cohort_facts
from .results.job import DIVERGED, format_tables, read_predictions, read_results
from .schemas import MAX_PARTICIPANT_TABLE_BYTES, parse_json, read_bounded, show_value, to_json
from .storage import SUMS, hash_file, open_scratch_folder, read_sums
from .version import __version__

TOLERANCE = 1e-9  # relative difference up to which stored numbers are the same; printed ones are to the last digit
RETRAINED, RETRAINED_NETWORK = 1e-6, 1e-3  # the same of margins of a run that is trained again, in their SD
MOST_SHOWN = 50  # differences of one kind that are named; further ones are counted
NOT_CHECKED = """\
values known only from training (epochs, validation AUC, block length, seconds, device, source sites)
weights, audit.json, facts.json, groups.csv, exclusions.tsv, the search of 'brio tune', tables and figures of studies, \
and results that a study reuses, except for their hashes
sites.png
whether the whole folder was fabricated so that all numbers agree"""

_EXTERNAL = re.compile(r'<section id="external"|^## External validation', re.MULTILINE)
"""The text by which a page or a card that shows external validation is recognised."""


@dataclass
class Verification:
    """Counts of compared values of each kind, their differences, and what was not checked."""

    counts: dict[str, int] = field(default_factory=dict)
    differences: dict[str, list[str]] = field(default_factory=dict)
    not_checked: list[str] = field(default_factory=NOT_CHECKED.splitlines)

    def compare(
        self, kind: str, place: object, stored: Any, made: Any, relative: float = TOLERANCE, absolute: float = 1e-15
    ) -> None:
        """Compare a stored document with a recomputed one by their values; numbers may differ by a tolerance."""
        one, other = _flatten(to_json(stored)), _flatten(to_json(made))
        for name in dict.fromkeys([*one, *other]):
            texts = one.get(name), other.get(name)
            self.counts[kind] = self.counts.get(kind, 0) + 1
            if not _are_same(*texts, relative, absolute):
                shown = ["nothing" if text is None else show_value(text).strip("'") for text in texts]
                line = f"{place}{name}: stored {shown[0]}, recomputed {shown[1]}"
                self.differences.setdefault(kind, []).append(line)

    def compare_file(self, path: Path, made: str) -> None:
        """Compare a file, whatever its hash, with the text expected in it; a text without rows counts as absent."""
        stored = read_bounded(path, MAX_PARTICIPANT_TABLE_BYTES).decode(errors="replace") if path.exists() else ""
        tolerance = TOLERANCE if path.suffix in (".csv", ".json") else 0.0
        self.compare(path.name, path, _parse(stored, path), _parse(made, path), tolerance)

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


def _are_same(one: str | None, other: str | None, relative: float, absolute: float) -> bool:
    try:
        return one == other or math.isclose(float(one or ""), float(other or ""), rel_tol=relative, abs_tol=absolute)
    except ValueError:
        return False


def _flatten(document: Any, name: str = "") -> dict[str, str]:
    """Return the values of a document by their keys."""
    if isinstance(document, dict | list) and (document or not name):
        items = document.items() if isinstance(document, dict) else enumerate(document)
        return {place: text for key, value in items for place, text in _flatten(value, f"{name}, {key}").items()}
    return {name: document if isinstance(document, str) else json.dumps(document)}


def _parse(text: str, path: Path) -> Any:
    """Return the cells of a csv text, the object of a JSON text, else words by line; a picture counts as one word."""
    if path.suffix == ".json":
        return parse_json(text.encode(), path)
    if path.suffix == ".csv":
        with suppress(csv.Error):  # a damaged table differs from every other one, also as words
            return {f"line {k}": row for k, row in enumerate(csv.DictReader(io.StringIO(text)), 2)}
    words = (re.findall(r"[\w+/=]{400,}|\d+(?:[.,]\d+)*|[^\d\s]+", line) for line in text.split("\n"))
    return {f"line {k}": {f"word {j}": word for j, word in enumerate(line, 1)} for k, line in enumerate(words, 1)}


# ---------------------------------------------------------------- a job, without its cohort


def _read_records(found: Verification, folder: Path, plan: Plan) -> dict[str, RunRecord]:
    """Read the records of a job by their keys, which are checked, in the order of its tables; none if left out."""
    store, keys, records = RunStore(folder / files.RUNS), {}, {}
    if not store.folder.is_dir():
        found.not_checked.append(f"predictions against the records of runs, because {store.folder} is missing")
    for key in sorted(path.name for path in store.folder.glob("*/")):
        record = store.read_record(key)
        row, method = record.row, plan.methods.get(record.row.method)
        if method is None:
            keys[key] = row.method
            continue
        keys[key] = run_key(plan, row.method, record.settings, row.fold, row.seed)
        records[key] = record
        if not method.tuned:
            place = store.folder / key / files.RECORD
            found.compare("settings of runs (run.json, plan.json)", place, record.settings, method.settings)
    planned, order = {key: key for stack in plan.stacks for key in stack}, [*plan.methods]
    found.compare("keys of runs (run.json, plan.json)", store.folder, planned if records else {}, keys)

    def find_place(key: str) -> tuple[int, int, int, str]:
        row = records[key].row  # folds under k-fold are numbers
        return order.index(row.method), row.seed, len(row.fold) if plan.protocol == "kfold" else 0, row.fold

    return {key: records[key] for key in sorted(planned.keys() & records.keys(), key=find_place)}


def _score_again(row: RunRow, plan: Plan, part: pd.DataFrame) -> dict[str, Any]:
    """Compute every value of a run's row that follows from its predictions and the plan."""
    scores, notes = results.score_run(*(part[name].to_numpy(dtype=float) for name in ("label", "margin", "logit")))
    notes += [note for note in (row.note or "").split("; ") if note not in ("", DIVERGED, ONE_CLASS)]
    facts = {"cohort": plan.cohort, "protocol": plan.protocol, "n_test": len(part), "note": "; ".join(notes)}
    return scores | facts | {"test_sites": ";".join(sorted(set(part["site"].fillna(""))))}


def _verify_job(found: Verification, folder: Path) -> tuple[StoredJob, dict[str, RunRecord]]:
    """Compare the files of a job with what follows from its predictions; return the recomputed job."""
    plan, predictions = Plan.read(folder), read_predictions(folder)
    if predictions is None:
        raise BrioError(
            f"{folder}: has no {files.PREDICTIONS}, from which everything else is recomputed; "
            "ask for the folder of a finished job"
        )
    records = _read_records(found, folder, plan)
    if records:
        rows = [record.row for record in records.values()]
        recorded = results.prediction_rows(list(records.values()))
    else:  # what does not follow from predictions is taken from the table
        known = read_results(folder).astype(object)
        rows = [RunRow(**row) for row in known.where(known.notna(), None).to_dict("records")]
        recorded = predictions.assign(probability=0.5 * (1.0 + np.tanh(0.5 * predictions["logit"].astype(float))))
    found.compare_file(folder / files.PREDICTIONS, files.format_csv(recorded))
    parts = dict(iter(predictions.groupby(["method", "fold", "seed"], sort=False)))
    scored = [_score_again(row, plan, parts.get((row.method, row.fold, row.seed), predictions[:0])) for row in rows]
    for key, row, made in zip(records, rows, scored, strict=False):
        stored = {name: getattr(row, name) for name in made}
        found.compare("scores of runs (run.json)", folder / files.RUNS / key, stored, made)
    table = results.result_rows(replace(row, **made) for row, made in zip(rows, scored, strict=True))
    settings = {name: method.settings for name, method in plan.methods.items()}
    settings |= {record.row.method: record.settings for record in records.values()}
    facts = {name: restore_method(name, values).facts for name, values in settings.items()}
    summary = results.summarise(plan, table, predictions, facts, read_cohort_facts(folder))
    texts = format_tables(table, predictions, summary)
    texts |= {"table.md": markdown_table([summary])} if (folder / "table.md").is_file() else {}
    del texts[files.PREDICTIONS]
    for name, text in texts.items():
        found.compare_file(folder / name, text)
    return replace(StoredJob.read(folder), summary=summary, rows=table), records


def _verify_pages(
    found: Verification, folder: Path, jobs: Mapping[Path, StoredJob], predictions: Sequence[Path]
) -> None:
    """Compare the report, and what lies beside it, with those of the recomputed jobs and of stored predictions."""
    evidence = read_evidence(folder, lambda place: jobs.get(place) or read_job(place))
    validations = [read_validation(one) for one in predictions]
    for path, text in format_report(replace(evidence, validations=validations), folder / PAGE).items():
        writer = read_writer(path)
        if writer and not validations and _EXTERNAL.search(path.read_text("utf-8", errors="replace")):
            found.not_checked.append(f"{path.name}, which shows external validation (check it with --predictions)")
        elif writer == __version__:
            found.compare_file(path, text)
        else:
            why = f"was written by brio {writer}, not {__version__}" if writer else "is missing"
            found.not_checked.append(f"{path.name}, which {why}")


# ---------------------------------------------------------------- with the cohort


def _verify_cohort(
    found: Verification, job: StoredJob, records: Mapping[str, RunRecord], cohort: Cohort
) -> tuple[Cohort, dict[str, PlannedRun]]:
    """Compare a job with its cohort; returns the scans that it uses, and its runs ready to be trained."""
    from .training import Run

    plan, predictions = job.require_plan(), pd.DataFrame(job.predictions)
    whole = cohort if plan.label is None else relabel(cohort, plan.label, (plan.audit or {}).get("min_class", 0))
    used = whole.select(np.array([name not in plan.excluded for name in whole.ids]))
    stored = {"before exclusions": plan.fingerprint_before_exclusions, "after": plan.fingerprint}
    here = {"before exclusions": whole.fingerprint, "after": used.fingerprint}
    found.compare("fingerprints of the cohort (plan.json)", job.folder / files.PLAN, stored, here)
    if stored != here:
        found.not_checked.append(f"labels, sites and runs of {job.folder}, because {cohort.name} is a different cohort")
        return used, {}
    settings, planned = ProtocolSettings(**plan.protocol_settings), {}
    folds = {(f.name, seed): f for seed in plan.seeds for f in make_folds(used, plan.protocol, seed, settings)}
    for (method, name, seed), part in predictions.groupby(["method", "fold", "seed"], sort=False):
        test = folds[name, seed].test if (name, seed) in folds else np.empty(0, int)
        people = zip(used.participant_ids[test], used.sites[test], used.labels[test], strict=True)
        own = part[["participant_id", "site", "label"]].fillna("").itertuples(index=False, name=None)
        stated, known = ({str(who): f"{site}, {label}" for who, site, label in one} for one in (own, people))
        place = f"{job.folder / files.PREDICTIONS}, {method}, fold {name}, seed {seed}, participant"
        found.compare("ids, sites and labels (cohort)", place, stated, known)
    for key, record in records.items():
        row, fold = record.row, folds.get((record.row.fold, record.row.seed))
        if fold is not None:
            method = restore_method(row.method, record.settings)
            planned[key] = PlannedRun(method, Run(fold, row.seed), key)
            parts = {"source": method.training_scans(used, fold), "validation": fold.validation}
            counts = {f"n_{name}": count_participants(used, scans) for name, scans in parts.items()}
            made = counts | {"validation_sites": ";".join(fold.validation_sites)}
            stored = {name: getattr(row, name) for name in made}
            found.compare("parts of folds (cohort)", job.store.folder / key, stored, made)
    return used, planned


def _train_again(
    found: Verification,
    job: StoredJob,
    used: Cohort,
    planned: dict[str, PlannedRun],
    drawn: set[str],
    device: str | None,
) -> None:
    """Train runs of a job again and compare their margins; networks are trained in their whole stack."""
    from .jobs.train import train_stack

    plan = job.require_plan()
    harmonise = {f"harmonise.{name}": value for name, value in (plan.harmonise or {}).items()}
    spec = JobSpec(used, settings=harmonise, device=device or plan.device, checkpoint_every=0)
    compute = resolve_device(spec.device)
    again = Job(spec, used, used, None, compute, estimate_once(used, compute.torch_device))
    with open_scratch_folder() as scratch:
        store = RunStore(scratch / files.RUNS, records_only=True)
        for key in sorted(drawn & planned.keys()):
            method = planned[key].method
            if method.version != plan.methods[method.name].version:
                raise BrioError(
                    f"method '{method.name}' has changed since brio {plan.brio} wrote this job; use that version"
                )
            # the last bits of a network follow those that are trained beside it, and training magnifies them
            is_network = method.facts.epochs is not None
            together = next(stack for stack in plan.stacks if key in stack) if is_network else (key,)
            stacks = (tuple(one for one in together if one in planned),)
            if key not in store:
                train_stack(again, JobPlan(replace(plan, stacks=stacks), planned), 1, store)
            both = [one.read_record(key).predictions for one in (job.store, store)]
            stored, made = (dict(zip(one.participant_id, one.margin or (), strict=False)) for one in both)
            absolute = (RETRAINED_NETWORK if is_network else RETRAINED) * float(np.std(both[0].margin or 0.0))
            place = f"{job.store.folder / key}, {method.name}"
            found.compare("margins of retrained runs", place, stored, made, relative=0.0, absolute=absolute)


def verify_folder(
    folder: Path,
    cohort: Path | None = None,
    again: int = 0,
    seed: int = 0,
    device: str | None = None,
    predictions: Sequence[Path] = (),
) -> Verification:
    """Check a folder of jobs; with their cohort, also check labels and sites, and retrain runs drawn by a seed.

    ``predictions`` are the folders whose external validation the report shows.
    """
    files.require_folder(folder)
    places = [folder] if (folder / files.PLAN).is_file() else [p.parent for p in folder.rglob(files.PREDICTIONS)]
    # those without both files are of 'brio predict'
    if not (places := [p for p in places if (p / files.PLAN).is_file() or (p / files.RESULTS).is_file()]):
        raise BrioError(
            f"{folder}: contains no job to verify; give the --out folder of 'brio run', 'brio tune' or 'brio study'"
        )
    found, jobs = Verification(), {}
    for path in sorted(folder.rglob(SUMS)):
        sums = read_sums(path.parent, "ask for a complete copy of the folder")
        listed = sums.listed if sums else {}
        now = {file.name: hash_file(file) for file in map(path.with_name, listed) if file.is_file()}
        found.compare(f"hashes of files ({SUMS})", path.parent, listed, now)
    try:
        for place in sorted(places):
            jobs[place] = _verify_job(found, place)
        _verify_pages(found, folder, {place: job for place, (job, _) in jobs.items()}, predictions)
    except BrioError as error:
        if not found.differences:
            raise
        found.not_checked.append(f"all later checks, because of an error: {error}")
        return found
    if cohort is None:
        found.not_checked.append(
            "whether predictions, labels and sites belong to the scans (check this with --cohort and --again)"
        )
        return found
    loaded = Cohort.load(cohort)
    loaded.verify()
    checked = [(job, *_verify_cohort(found, job, records, loaded)) for job, records in jobs.values()]
    keys = [key for *_, planned in checked for key in planned]
    drawn = {keys[k] for k in np.argsort(draw_uniform(seed, "verify", addresses(keys)))[:again]}
    for job, used, planned in checked:
        if drawn & planned.keys():
            _train_again(found, job, used, planned, drawn, device)
    if len(drawn) < len(keys):
        rest = f"{len(keys) - len(drawn)} of {format_count(len(keys), 'run')}"
        found.not_checked.append(f"predictions of {rest}, because these were not drawn for retraining (--again)")
    return found
