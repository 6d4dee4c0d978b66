"""Functions for Python users: read a cohort, evaluate methods, make studies, fit a model, predict with it."""

from __future__ import annotations

import html
import math
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from .cohort import Cohort
from .console import Progress, silent
from .errors import BrioError
from .formatting import MISSING, format_count, format_interval, format_number, typeset
from .jobs import JobSpec, run_job, tune_job
from .jobs.job import Say, ignore
from .jobs.spec import RECOMMENDED, choose_seeds
from .results import StoredJob, StoredStudy, TuningRecord
from .settings import check_arguments
from .storage import open_scratch_folder, refuse_existing

if TYPE_CHECKING:
    from .models import Model, ScanPredictions


@check_arguments
def import_cohort(kind: str, src: str | Path, *, out: str | Path, **options: Any) -> Cohort:
    """Read scans in one of the layouts of ``brio import``, and write them to a new cohort folder.

    Parameters
    ----------
    kind : str
        Layout of the files, such as ``"table"`` or ``"bids"``.
    src : path
        Folder or file with the scans.
    out : path
        Folder of the new cohort.
    **options
        Options of ``brio import`` for this layout, such as ``atlas``.

    Returns
    -------
    Cohort
        The cohort in ``out``, as read by :meth:`brio.Cohort.load`.

    Raises
    ------
    BrioError
        If the layout or an option is unknown, the scans cannot be read, or ``out`` already exists.

    Examples
    --------
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = [f"{site}{k}\\t{site}\\t{k % 2}" for site in ("NYU", "KKI") for k in range(4)]
    >>> _ = (folder / "participants.tsv").write_text("\\n".join(["participant_id\\tsite\\tlabel", *rows]) + "\\n")
    >>> for k, row in enumerate(rows):
    ...     scan = np.random.default_rng(k).normal(size=(60, 4))
    ...     np.savetxt(folder / f"{row.split()[0]}.csv", scan, delimiter=",")
    >>> import_cohort("table", folder, out=folder / "cohort").n_rois
    4
    """
    from .cohort.readers import import_cohort as read_layout

    return read_layout(kind, src, out, **options)


class Result(StoredJob):
    """The results of a finished job.

    Attributes
    ----------
    folder : Path
        Folder of the job.
    rows : DataFrame
        One row per run, with its scores, its test and validation sites, and the chosen epoch.
    predictions : DataFrame or None
        One row per test participant of each run; None if predictions were not kept.
    summary : Summary
        For each method, mean scores over test sites (under k-fold, over test folds) with intervals.
    plan : Plan or None
        Methods, settings, folds and seeds, as in ``plan.json``; None if there is no such file.
    audit : dict or None
        Findings of the audit; None if the cohort was not audited.
    cohort_facts : dict or None
        Facts about the cohort, as in ``facts.json``; None if there is no such file.
    groups : DataFrame or None
        Sex of each participant, and whether age and motion are below the median, as far as they are known; None if
        there is no ``groups.csv``.
    tuning : TuningRecord or None
        The settings that :func:`brio.tune` chose in this job; None if nothing was tuned.
    unfinished : str
        What is missing of a job that is not finished; empty for a finished job.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> result = run(simulate(Simulation(n_sites=4, per_class=6)), ["ridge"], device="cpu")
    >>> len(result.rows), list(result.table().index)
    (4, ['ridge'])
    >>> print(result)  # doctest: +ELLIPSIS
    method  AUC ...
    """

    def table(self) -> pd.DataFrame:
        """Return the scores of each method as a table.

        Returns
        -------
        DataFrame, one row per method
            ``AUC`` is the mean over test sites (under k-fold, over the test folds of all seeds), ``SD`` the standard
            deviation over them, and ``low`` to ``high`` the 95% interval of the mean. ``AUC, pair-weighted`` weights
            each site by its number of pairs of a patient and a control (NaN under k-fold); ``AUC, seeds averaged`` is
            computed from margins averaged over seeds. All scores are in percent. ``epochs`` is the largest allowed
            number of epochs, and ``K`` the number of re-estimates of each source scan; None for methods without.
        """
        rows = {}
        for name, method in self.summary.methods.items():
            low, high = method.auc.interval or (None, None)
            rows[name] = {
                "AUC": _percent(method.auc.mean),
                "SD": _percent(method.auc.sd),
                "low": _percent(low),
                "high": _percent(high),
                "AUC, pair-weighted": _percent(method.pair_weighted_auc.mean if method.pair_weighted_auc else None),
                "AUC, seeds averaged": _percent(method.auc_of_averaged_logits.mean),
                "ACC": _percent(method.acc.mean),
                "balanced ACC": _percent(method.balanced_acc.mean),
                "folds": method.folds,
                "seeds": method.seeds,
                "epochs": method.epochs,
                "K": method.K,
            }
        return pd.DataFrame(rows).T

    @property
    def notes(self) -> list[str]:
        """Notes on the table: the size of the job, folds without an AUC, and warnings."""
        summary = self.summary
        units = format_count(len(summary.folds), "test site" if summary.protocol == "loso" else "test fold")
        seeds = format_count(len(summary.seeds), "seed")
        return [f"{units}, {seeds}, {summary.n_scans} scans", *summary.cautions]

    def text_table(self) -> tuple[list[str], list[list[str]]]:
        """Format the table as text, for a terminal or a page.

        Returns
        -------
        header : list of str
        rows : list of lists of str
        """
        several = len(self.summary.seeds) > 1
        header = ["method", "AUC", "95% interval", "SD", "ACC", "balanced ACC"]
        header += ["AUC, seeds averaged"] if several else []
        rows = []
        for name, row in self.table().iterrows():
            interval = format_interval([row["low"], row["high"]], _one_decimal, whole=100)
            cells = [_one_decimal(row["AUC"]), interval, *(_one_decimal(row[c]) for c in ("SD", "ACC", "balanced ACC"))]
            rows.append([str(name), *cells, *([_one_decimal(row["AUC, seeds averaged"])] if several else [])])
        return header, rows

    @check_arguments
    def report(self, path: str | Path | None = None, predictions: Sequence[str | Path] = ()) -> Path:
        """Write the HTML report of the job, with a model card and the references (.bib) next to it.

        Parameters
        ----------
        path : path, optional
            File to write; by default ``report.html`` in the folder of the job.
        predictions : sequence of paths, optional
            Folders that :func:`brio.predict` wrote for new scans with labels. The report compares the scores of these
            predictions with those expected from the evidence of the model.

        Returns
        -------
        Path
            Path of the report.
        """
        from .report.write import write_report

        return write_report(self.folder, path, predictions)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(folder={str(self.folder)!r}, methods={list(self.summary.methods)!r})"

    def __str__(self) -> str:
        header, rows = self.text_table()
        table = pd.DataFrame(rows, columns=header).to_string(index=False)
        return "\n".join([table, "Scores in percent", *self.notes, f"Folder: {self.folder}"])

    def _repr_html_(self) -> str:
        header, rows = self.text_table()

        def write_row(tag: str, name: str, cells: Sequence[str]) -> str:
            first = f'<th style="text-align:left;white-space:nowrap">{html.escape(name)}</th>'
            style = "text-align:right;padding-left:1.2em" + (";white-space:nowrap" if tag == "td" else "")
            return first + "".join(f'<{tag} style="{style}">{html.escape(typeset(cell))}</{tag}>' for cell in cells)

        head = write_row("th", header[0], header[1:])
        body = "".join(f"<tr>{write_row('td', name, cells)}</tr>" for name, *cells in rows)
        notes = "<br>".join(html.escape(note) for note in ["Scores in percent", *self.notes])
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{notes}</p>"


def _percent(share: float | None) -> float:
    return math.nan if share is None else 100 * share


def _one_decimal(value: float) -> str:
    return MISSING if value != value else format_number(float(value), 1)


@check_arguments
def run(
    cohort: Cohort | str | Path,
    methods: Sequence[str] | str = RECOMMENDED,
    *,
    label: str | None = None,
    protocol: str = "loso",
    seeds: int | None = None,
    out: str | Path | None = None,
    tuned: str | Path | TuningRecord | None = None,
    settings: dict[str, Any] | None = None,
    folds: Sequence[str] | str | None = None,
    companions: Sequence[Cohort] | Cohort = (),
    exclude: bool = True,
    device: str = "auto",
    runs_per_stack: int | None = None,
    records_only: bool = False,
    checkpoint_every: float = 120.0,
    progress: Progress = silent,
    say: Say = ignore,
) -> Result:
    """Evaluate methods on a cohort under a protocol.

    To resume an interrupted job, repeat the call with the same ``out``. Finished runs are not computed again, and
    neural networks continue from their last checkpoint.

    Parameters
    ----------
    cohort : Cohort or path of a cohort folder
    methods : names (see ``brio methods``), "recommended" or "all"
        ``"recommended"`` means log-ridge, ridge and three confound baselines, without methods that do not suit the
        cohort. ``"all"`` means every method whose inputs the cohort has, except variants of other methods.
    label : str, optional
        Label computed from a column of the participants table, used instead of the cohort's labels: ``"sex"``,
        ``"age>14.5"``, ``"age>site-median"``, ``"handedness=left"``. Methods cannot use this column as an input.
    protocol : {"loso", "kfold"}
        Leave one site out (``"loso"``), or folds stratified by site and class (``"kfold"``).
    seeds : int, optional
        Number of seeds; the seeds are 0 to ``seeds - 1``. The default is three for the recommended methods, and
        otherwise one. With fewer than three seeds, the result is marked as a smoke run, unless no score depends on the
        seed. A seed determines the initial weights, the random draws, and the validation sites (leave-one-site-out) or
        the folds (k-fold).
    out : path, optional
        Folder of the job. By default, a new temporary folder is made, which is not deleted.
    tuned : path or TuningRecord, optional
        Folder that :func:`tune` wrote. Methods that were tuned there use the settings that were chosen for each fold.
    settings : dict, optional
        Settings of the methods, the protocol (``protocol.validation_sites``), the audit (``audit.min_frames``) and
        the harmonisation (``harmonise.kind``).
    folds : names, optional
        Test sites to run (under k-fold, fold numbers such as ``"1"``). If ``folds`` is given, the result is marked as
        a smoke run.
    companions : cohorts
        Cohorts with the same participants in other atlases. A scan that the audit excludes from a companion is excluded
        from ``cohort``, too.
    exclude : bool
        Whether to apply the exclusions that the audit proposes.
    device : {"auto", "cpu", "cuda", "cuda-tf32"}
    runs_per_stack : int, optional
        Number of runs that train together; by default as many as memory allows.
    records_only : bool
        Whether to store only the scores and predictions of each run, without its weights.
    checkpoint_every : float
        Seconds between checkpoints while neural networks are trained. If it is 0, no checkpoints are stored.
    progress : Progress
        Function that is called with a description of the current step and the completed share of the work.
    say : callable
        Function that receives each message of the job as one line of text.

    Returns
    -------
    Result

    Raises
    ------
    BrioError
        If an option is not valid, the cohort cannot be used, or ``out`` holds another job.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> result = run(simulate(Simulation(n_sites=5, per_class=6)), ["ridge"], device="cpu")
    >>> sorted(result.rows["fold"])
    ['site01', 'site02', 'site03', 'site04', 'site05']
    """
    spec = JobSpec(
        cohort=cohort,
        methods=methods,
        label=label,
        protocol=protocol,
        seeds=choose_seeds(methods, seeds),
        settings=settings or {},
        folds=folds,
        companions=[companions] if isinstance(companions, Cohort) else companions,
        exclude=exclude,
        device=device,
        runs_per_stack=runs_per_stack,
        records_only=records_only,
        checkpoint_every=checkpoint_every,
        tuned=tuned if tuned is None or isinstance(tuned, TuningRecord) else TuningRecord.read(Path(tuned)),
    )
    folder = Path(tempfile.mkdtemp(prefix="brio-")) if out is None else Path(out)
    job = run_job(spec, folder, progress, say)
    assert job is not None, "only a job with --shard, an option of the command line, returns None"
    return _complete(job)


def _complete(job: StoredJob) -> Result:
    """Add to a job that has just ended what it stored of the cohort and of a search."""
    stored = Result.read(job.folder)
    return Result(**vars(job) | {key: getattr(stored, key) for key in ("cohort_facts", "groups", "tuning")})


@check_arguments
def tune(
    cohort: Cohort | str | Path,
    methods: Sequence[str] | str,
    *,
    out: str | Path,
    budget: int = 4,
    oracle: bool = False,
    progress: Progress = silent,
    say: Say = ignore,
    **options: Any,
) -> Result:
    """Try configurations of methods, choose one for each method and fold, and evaluate it with all seeds.

    The first configuration is the default. The others are drawn from the search spaces of the method, which
    ``brio methods NAME`` shows. In each fold, every configuration is trained with seed 0, and the one with the highest
    AUC on the validation scans is chosen (without validation sites, in inner folds); in a tie with the default, the
    default. Test scans are not used for this choice.

    Parameters
    ----------
    cohort, methods, progress, say
        As in :func:`brio.run`.
    out : path
        Folder of the job. ``tuning.json`` and ``configurations.csv`` describe the search.
    budget : int
        Largest number of configurations of each method, including the default.
    oracle : bool
        Whether to also write the AUC of every configuration on the test scans, and the mean over folds of the highest
        one. This mean uses test labels, so it is an upper bound for these configurations, not a result.
    **options
        ``label``, ``protocol``, ``seeds``, ``settings``, ``folds``, ``companions``, ``exclude``, ``device``,
        ``runs_per_stack``, ``checkpoint_every`` and ``records_only``, as in :func:`brio.run`; ``seeds`` is 1 by
        default. Settings that you give are not tuned.

    Returns
    -------
    Result
        Result of the chosen configurations.

    Raises
    ------
    BrioError
        If an option is not valid, the cohort cannot be used, or ``out`` holds another job.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> cohort = simulate(Simulation(n_sites=5, per_class=6))
    >>> result = tune(cohort, ["ridge"], out=Path(tempfile.mkdtemp()) / "tuned", budget=2, device="cpu")
    >>> (result.folder / "tuning.json").is_file()
    True
    """
    spec = JobSpec(cohort=cohort, methods=methods, **_fill_settings(options))
    job = tune_job(spec, Path(out), budget=budget, oracle=oracle, progress=progress, say=say)
    assert job is not None, "only a job with --shard, an option of the command line, returns None"
    return _complete(job)


def _fill_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with no settings where these are None."""
    return options | {"settings": {}} if options.get("settings") is None else options


@check_arguments
def study(
    name: str,
    cohort: Cohort | str | Path,
    *,
    out: str | Path,
    methods: Sequence[str] | str = (),
    labels: Sequence[str] | str = (),
    reuse: Sequence[str | Path] | str | Path = (),
    seeds: int = 3,
    progress: Progress = silent,
    say: Say = ignore,
    **options: Any,
) -> StoredStudy:
    """Make one study: train the missing runs, then write a table, a figure and a text.

    Parameters
    ----------
    name : str
        Name of the study; ``brio studies`` lists all names.
    cohort : Cohort or path of a cohort folder
    out : path
        Folder for the results. Studies in the same folder share their runs, and an interrupted study is resumed.
    methods : names, optional
        Methods to study, instead of the study's default methods.
    labels : labels, optional
        Label to use instead of the cohort's own, as ``label`` in :func:`brio.run`. Only the study ``labels`` takes
        several.
    reuse : paths, optional
        Folders that :func:`run` or :func:`tune` wrote. The study uses their results instead of training again, except
        where it needs the weights of a run.
    seeds : int
        Number of seeds. With fewer than three seeds, the study is marked as a smoke run.
    progress, say
        As in :func:`brio.run`.
    **options
        ``protocol``, ``settings``, ``folds``, ``companions``, ``exclude``, ``device``, ``runs_per_stack`` and
        ``checkpoint_every``, as in :func:`brio.run`.

    Returns
    -------
    StoredStudy
        The study, with its ``table`` (a DataFrame), ``finding`` (Markdown), ``record`` and ``folder``.

    Raises
    ------
    BrioError
        If the study or a method is unknown, an option is not valid, or the cohort cannot be used.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> cohort = simulate(Simulation(n_sites=5, per_class=6))
    >>> found = study("subgroups", cohort, out=tempfile.mkdtemp(), methods=["ridge"], seeds=1, device="cpu")
    >>> sorted(set(found.table["variable"]))[-1]
    'sex'
    """
    from .studies import StudyContext, run_study
    from .studies.study import choose_label, find_study

    if name == "paper":
        raise BrioError(
            "brio.study makes a single study; for all studies of the paper, use 'brio study paper COHORT --out DIR'"
        )
    find_study(name)  # an unknown name is reported before anything is read
    questions = [labels] if isinstance(labels, str) else list(labels)
    label = choose_label(name, questions)
    spec = JobSpec(cohort, methods, seeds=seeds, label=label, **_fill_settings(options))
    folders = [reuse] if isinstance(reuse, str | Path) else reuse
    context = StudyContext(spec, out, questions=questions, reuse=folders, progress=progress, say=say)
    return StoredStudy.read(run_study(name, context))


@check_arguments
def fit(
    cohort: Cohort | str | Path,
    method: str = "log-ridge",
    *,
    out: str | Path | None = None,
    seeds: int = 1,
    evaluate: bool = False,
    evidence: str | Path | None = None,
    validation_sites: Sequence[str] = (),
    holds_scans: bool = False,
    progress: Progress = silent,
    say: Say = ignore,
    **options: Any,
) -> Model:
    """Fit a method to a cohort, and return a model that other sites can use.

    Parameters
    ----------
    cohort : Cohort or path of a cohort folder
    method : str
        Name of a method; ``brio methods`` lists all names.
    out : path, optional
        Folder for the model; it must not exist. By default, nothing is written.
    seeds : int
        Number of seeds. The model contains one fitted run per seed and averages their logits.
    evaluate : bool
        Whether to evaluate the method at each site in turn, and to store the scores in the model as evidence. A model
        without evidence never calls a class.
    evidence : path, optional
        Folder in which :func:`brio.run` evaluated this method at left-out sites; use it instead of ``evaluate``.
    validation_sites : names, optional
        For neural networks: the sites on which the epoch is chosen. By default, two sites are drawn at random; with
        fewer than four sites with both classes, inner folds are used.
    holds_scans : bool
        Whether to allow a model that contains data of individual scans.
    progress, say
        As in :func:`brio.run`.
    **options
        ``label``, ``settings``, ``companions``, ``exclude``, ``device`` and ``runs_per_stack``, as in
        :func:`brio.run`; and ``leave_out``, the names of sites that are not used for fitting.

    Returns
    -------
    Model
        See :class:`brio.models.Model`.

    Raises
    ------
    BrioError
        If an option is not valid, the cohort cannot be used, or ``out`` exists.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> fit(simulate(Simulation(n_sites=4, per_class=6)), "ridge", device="cpu")
    Model('ridge': 1 seed, 46 scans of 4 sites, 24 ROIs (simulated), not evaluated)
    """
    if out is not None:
        refuse_existing(out)
    if evaluate and evidence is not None:
        raise BrioError("evidence and evaluate cannot be combined; give only one of them")
    from .models import fit_model, write_model

    spec = JobSpec(cohort, [method], seeds=seeds, **_fill_settings(options))
    model = fit_model(
        spec,
        validation_sites=validation_sites,
        holds_scans=holds_scans,
        to_evaluate=evaluate,
        evidence=evidence,
        progress=progress,
        say=say,
    )
    if out is not None:
        write_model(model, out)
    return model


@check_arguments
def load_model(path: str | Path) -> Model:
    """Read a model from its folder, and check each of its files.

    Parameters
    ----------
    path : path
        Folder that :func:`fit` or ``brio fit`` wrote.

    Returns
    -------
    Model
        See :class:`brio.models.Model`.

    Raises
    ------
    BrioError
        If the folder is not a model, a file is damaged, or the method of the model is unknown.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> out = Path(tempfile.mkdtemp()) / "model"
    >>> _ = fit(simulate(Simulation(n_sites=4, per_class=6)), "ridge", out=out, device="cpu")
    >>> load_model(out).classes
    ('control', 'patient')
    """
    from .models import read_model

    return read_model(path)


@check_arguments
def predict(
    model: Model | str | Path,
    scans: Cohort | str | Path,
    *,
    out: str | Path | None = None,
    reestimates: int = 47,
    accuracy: float = 0.8,
    device: str = "auto",
    **options: Any,
) -> ScanPredictions:
    """Predict the class of scans with a model.

    Parameters
    ----------
    model : Model or path of a model folder
    scans : Cohort or path
        Scans with time series: a cohort, its folder, one file, or a folder in a layout of ``brio import``
        other than ``fc``.
    out : path, optional
        Folder for the predictions and the page that shows them; it must not exist. By default, nothing is written.
    reestimates : int
        Number of re-estimates of each scan, from which the interval of its probability is computed.
    accuracy : float
        Required accuracy of the called classes. A scan for which this accuracy is not expected gets no call.
    device : {"auto", "cpu", "cuda", "cuda-tf32"}
    **options
        ``kind``, ``tr`` and the options of ``brio import``, if ``scans`` is a path of files that were not imported.

    Returns
    -------
    ScanPredictions
        Predictions with a ``table`` of one row per scan: the probability with its interval, the called class, and
        how the scan differs from those that the model was fitted to. If the method has factors, ``contributions``
        lists the contribution of each factor to the margin.

    Raises
    ------
    BrioError
        If the scans and the model have different ROIs, an option is not valid, or ``out`` exists.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> cohort = simulate(Simulation(n_sites=5, per_class=6))
    >>> here = cohort.sites == "site05"
    >>> model = fit(cohort.select(~here), "ridge", device="cpu")
    >>> predict(model, cohort.select(here), device="cpu").table["probability"].between(0, 1).all()
    np.True_
    """
    if out is not None:
        refuse_existing(out)
    from .models import predict_scans
    from .models.external import write_predictions
    from .models.predict import warn_of_differences

    with open_scratch_folder() as place:
        fitted = load_model(model) if isinstance(model, str | Path) else model
        if isinstance(scans, Cohort) and options:
            raise BrioError(f"{min(options)}: not available if scans is a Cohort; leave it out")
        if not isinstance(scans, Cohort):
            from .cohort.readers import read_scans_to_predict

            training = fitted.training
            known: dict[str, Any] = {"known_header": training.header, "known_extraction": training.extraction}
            known["known_rois"] = fitted.atlas
            scans = read_scans_to_predict(scans, place / "scans", **known, **options)
        predictions = predict_scans(fitted, scans, reestimates=reestimates, wanted_accuracy=accuracy, device=device)
        for line in warn_of_differences(fitted, scans):
            warnings.warn(line.removeprefix("warning: "), stacklevel=2)
        if out is not None:
            from .report.predictions import render_prediction_page

            write_predictions(fitted, scans, predictions, out, render_prediction_page(fitted, scans, predictions))
    return predictions
