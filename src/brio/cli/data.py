"""Commands that make and check cohorts: import, fetch, simulate, atlas and audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .. import settings
from ..console import say
from ..storage import refuse_existing
from .app import DATA, app, fetch_app
from .options import Companions, Out, ReadingOptions, Sets, number, say_warnings, share_options


@app.command("import", rich_help_panel=DATA)
@share_options
def import_(
    kind: Annotated[
        str,
        typer.Argument(
            help="Layout of the files: 'pcp' (ABIDE of the Preprocessed Connectomes Project), 'dpabi' (REST-meta-MDD), "
            "'bids' (derivatives of XCP-D, HALFpipe, C-PAC or CIFTI pipelines), 'table' (a participants table and one "
            "file per scan), 'fc' (a participants table and one connectome per participant) or 'packed' (ABIDE as "
            "8-bit integers)."
        ),
    ],
    src: Annotated[Path, typer.Argument(help="Folder with the files.")],
    out: Out,
    atlas: Annotated[
        str | None, typer.Option(help="Atlas to read, for example aal116 or cc200; required if there are several.")
    ] = None,
    participants: Annotated[
        Path | None, typer.Option(help="Participants table, if it is not in its usual place.")
    ] = None,
    measure: Annotated[
        str | None, typer.Option(help="fc: what the matrices hold, correlation or fisher-z, where it cannot be told.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the cohort.")] = None,
    frames_in_rows: Annotated[
        bool, typer.Option("--frames-in-rows", help="Take rows as frames although they seem to be the regions.")
    ] = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Import scans from a folder and write them as a cohort.

    Several values of --patient make one class, several of --control the other.

    Example: brio import table scans --label-column dx --patient MDD --control HC --out cohort
    """
    from ..cohort.readers import import_cohort, summarise_columns, summarise_import

    options = reading.to_keywords()
    for key in ("patient", "control"):  # one value stays as it is, so that a cohort records it as before
        options[key] = options[key][0] if options[key] and len(options[key]) == 1 else options[key]
    cohort = import_cohort(
        kind,
        src,
        out,
        atlas=atlas,
        participants=participants,
        measure=measure,
        name=name,
        frames_in_rows=frames_in_rows or None,
        **options,
    )
    say_warnings(cohort)
    say(summarise_import(cohort))
    say(summarise_columns(cohort))
    say(f"wrote {cohort!r} to {out}")
    if not cohort.atlas.has_coordinates:
        say(
            f"its regions have no coordinates, so that no figure shows the brain; 'brio atlas {out} TABLE --out "
            "COHORT2' adds them (TABLE: name, x, y, z, network)"
        )


@app.command(rich_help_panel=DATA)
def atlas(
    cohort: Annotated[Path, typer.Argument(help="Cohort folder.")],
    table: Annotated[
        str,
        typer.Argument(
            help="Table of the ROIs: a tsv or csv file with the columns name, x, y, z (MNI, mm) and network, or a "
            "known atlas: aal116, cc200, power264, dosenbach160, seitzman300; downloaded by nilearn: schaefer100 to "
            "schaefer1000, difumo64 to difumo1024, harvard-oxford-cort, -cortl or -sub, basc7 to basc444."
        ),
    ],
    out: Out,
    by_order: Annotated[
        bool, typer.Option("--by-order", help="Take the rows in the order of the ROIs, whatever these are called.")
    ] = False,
) -> None:
    """Add names, coordinates and networks of the ROIs to a cohort, so that figures show the brain.

    Rows of the table are found by the names of the ROIs, or by their order if these have no names. Scans stay as they
    are. The new cohort has a fingerprint of its own, so that finished jobs of the old one are not reused.

    Example: brio atlas cohort rois.tsv --out cohort-named
    """
    from ..cohort import Cohort
    from ..cohort.readers import add_atlas

    refuse_existing(out)
    loaded = Cohort.load(cohort)
    loaded.verify()
    named, warnings = add_atlas(loaded, table, out, by_order)
    for warning in warnings:
        say(f"warning: {warning}")
    matched_by = named.provenance["atlas_added"]["matched_by"]
    say(f"{named.n_rois} ROIs matched by {matched_by}; columns: {', '.join(named.atlas.rois.columns)}")
    say(f"wrote {named!r} to {out}")


@fetch_app.command("abide")
def fetch_abide_(
    out: Out,
    atlas: Annotated[str, typer.Option(help="Atlas: aal or cc200.")] = "aal",
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder for the downloaded files; that of nilearn by default.")
    ] = None,
    n_subjects: Annotated[
        int | None, number(settings.Participants, "Import only the first so many participants.")
    ] = None,
    digests: Annotated[
        Path | None,
        typer.Option(
            help="File of SHA-256 digests, as sha256sum writes it: downloaded files are compared with it, or recorded "
            "there if it does not exist. The release publishes none."
        ),
    ] = None,
) -> None:
    """Download ABIDE I (Preprocessed Connectomes Project, C-PAC pipeline) and write it as a cohort.

    This is the one command that uses the network, besides those that are given an atlas that nilearn downloads
    ('brio atlas', and --atlas-table).
    """
    from ..cohort.readers import fetch_abide, summarise_import

    cohort = fetch_abide(atlas, out, data_dir=data_dir, n_subjects=n_subjects, digests=digests)
    say(summarise_import(cohort))
    say(f"wrote {cohort!r} to {out}")


@app.command(rich_help_panel=DATA)
def simulate(
    out: Out,
    sites: Annotated[int, number(settings.Count, "Number of sites.")] = 6,
    per_class: Annotated[int, number(settings.Participants, "Participants per class at an average site.")] = 14,
    rois: Annotated[int, number(settings.SimulatedRois, "Number of ROIs, a multiple of four.")] = 24,
    frames: Annotated[int, number(settings.SimulatedFrames, "Frames per scan at an average site.")] = 140,
    sessions: Annotated[int, number(settings.Sessions, "Scans per participant.")] = 1,
    session_sd: Annotated[
        float, number(settings.Spread, "SD of the coupling between sessions; between participants it is 0.15.")
    ] = 0.0,
    seed: Annotated[int, number(settings.Seed, "Seed of the random numbers.")] = 0,
) -> None:
    """Simulate a multi-site cohort in which the truth is known.

    Four networks are planted: a stable class effect, a short burst in patients,
    an effect whose direction differs between sites, and a scanner effect.
    """
    from ..cohort.simulate import Simulation
    from ..cohort.simulate import simulate as simulate_cohort

    refuse_existing(out)
    simulation = Simulation(
        n_sites=sites,
        per_class=per_class,
        n_rois=rois,
        frames=frames,
        sessions=sessions,
        session_sd=session_sd,
        seed=seed,
    )
    cohort = simulate_cohort(simulation).save(out)
    say(f"wrote {cohort!r} to {out}")


@app.command(rich_help_panel=DATA)
def audit(
    cohort: Annotated[Path, typer.Argument(help="Cohort folder.")],
    companion: Companions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole audit as JSON.")] = False,
    setting: Sets = None,
) -> None:
    """Check a cohort for defects and propose exclusions, with reasons.

    It looks for duplicate scans, regions without signal and short scans.
    It reports how label, scan length and repetition time depend on the site,
    which covariates (age, sex, motion, ...) differ between the classes,
    and which protocols the number of sites allows.
    Change its rules with --set, for example --set min_frames=60.
    """
    from ..cohort import AuditRules, Cohort, format_audit
    from ..cohort import audit as audit_cohort
    from ..protocol.folds import describe_allowed_protocols
    from ..settings import parse_assignments, replace_values

    given = {k.removeprefix("audit."): v for k, v in parse_assignments(setting or []).items()}
    rules = replace_values(AuditRules(), given, "audit.")
    loaded, *companions = [Cohort.load(folder) for folder in (cohort, *(companion or []))]
    for one in (loaded, *companions):
        one.verify()
    result = audit_cohort(loaded, rules, companions)
    if as_json:
        print(json.dumps(result.to_dict(), indent=1))
    else:
        say(format_audit(result))
        say("\nWhat the number of sites allows")
        for line in describe_allowed_protocols(loaded.select(result.keep)):
            say(f"  {line}")
