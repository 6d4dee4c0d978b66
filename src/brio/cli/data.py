"""Commands that create and check cohorts: import, fetch, simulate, atlas, select and audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from .. import settings
from ..console import say, show_progress
from ..storage import refuse_existing
from . import options
from .app import DATA, fetch_app


@options.add_command(DATA, "import")
def import_(
    kind: Annotated[
        str,
        "Layout of the files: 'pcp' (ABIDE from the Preprocessed Connectomes Project), 'dpabi' (REST-meta-MDD), "
        "'bids' (derivatives of XCP-D, giga_connectome, HALFpipe, C-PAC or CIFTI pipelines), 'fmriprep' "
        "(preprocessed images, from which time series are extracted), 'table' (a participants table and one file "
        "per scan), 'fc' (a participants table and one connectome per scan) or 'packed' (ABIDE as 8-bit "
        "integers).",
    ],
    src: Annotated[Path, "Folder with the files."],
    out: options.Out,
    atlas: Annotated[
        str | None,
        "Atlas to read, for example aal116 or cc200; required for dpabi and fmriprep, and if there are "
        "several. fmriprep: a label image, or aal116, schaefer100 to schaefer1000, harvard-oxford-cort, -cortl or "
        "-sub, or basc7 to basc444.",
    ] = None,
    participants: Annotated[Path | None, "Participants table; give it if brio does not find the table."] = None,
    measure: Annotated[
        str | None, "fc: what the matrices contain (correlation or fisher-z), if this is ambiguous."
    ] = None,
    name: Annotated[str | None, "Name of the cohort."] = None,
    frames_in_rows: Annotated[bool, "Treat rows as frames even if they look like regions."] = False,
    *,
    reading: options.ReadingOptions,
    table: options.TableOptions,
    images: options.ImageOptions,
) -> None:
    """Import scans from a folder and write them as a cohort.

    Several values of --patient form one class, and several of --control form the other.
    To resume an import of images that was interrupted, run the same command again.

    Example: brio import table scans --label-column dx --patient MDD --control HC --out cohort
    """
    from ..cohort.readers import import_cohort, summarise_columns, summarise_import

    given = reading.to_keywords() | vars(table) | images.to_keywords()
    for key in ("patient", "control"):  # one value stays as it is, so that a cohort records it as before
        given[key] = given[key][0] if given[key] and len(given[key]) == 1 else given[key]
    given |= {"atlas": atlas, "participants": participants, "measure": measure, "name": name}
    with show_progress(images.quiet or kind != "fmriprep") as progress:
        cohort = import_cohort(kind, src, out, progress=progress, frames_in_rows=frames_in_rows or None, **given)
    options.say_warnings(cohort.provenance.get("warnings", []))
    say(summarise_import(cohort))
    say(summarise_columns(cohort))
    say(f"wrote {cohort!r} to {out}")
    if not cohort.atlas.has_coordinates:
        how = f"add coordinates with 'brio atlas {out} TABLE --out COHORT2' (TABLE: name, x, y, z, network)"
        say(f"regions of this cohort have no coordinates, so brio cannot draw brain figures; {how}")


@options.add_command(DATA)
def atlas(
    cohort: Annotated[Path, "Cohort folder."],
    table: Annotated[
        str,
        "Table of ROIs: a tsv or csv file with the column 'name' and, optionally, x, y, z (MNI, mm) and network, or "
        "a known atlas: aal116, cc200, power264, dosenbach160 or seitzman300. nilearn downloads schaefer100 to "
        "schaefer1000, difumo64 to difumo1024, harvard-oxford-cort, -cortl and -sub, and basc7 to basc444.",
    ],
    out: options.Out,
    by_order: Annotated[bool, "Match rows and ROIs by their order and ignore the names."] = False,
) -> None:
    """Add names, coordinates and networks of the ROIs to a cohort, so that figures show the brain.

    Rows of the table are matched by the names of the ROIs, or by order if the ROIs have no names. The new cohort
    has another fingerprint, so jobs of the old cohort cannot be resumed with it.

    Example: brio atlas cohort rois.tsv --out cohort-named
    """
    from ..cohort import Cohort
    from ..cohort.readers import add_atlas

    refuse_existing(out)
    loaded = Cohort.load(cohort)
    loaded.verify()
    named, warnings = add_atlas(loaded, table, out, by_order)
    options.say_warnings(warnings)
    matched_by = named.provenance["atlas_added"]["matched_by"]
    say(f"{named.n_rois} ROIs matched by {matched_by}; columns: {', '.join(named.atlas.rois.columns)}")
    say(f"wrote {named!r} to {out}")


@options.add_command(DATA)
def select(
    cohort: Annotated[Path, "Cohort folder."],
    out: options.Out,
    where: options.Where = None,
    exclude: options.Exclude = None,
) -> None:
    """Write some of the scans of a cohort as a new cohort.

    Example: brio select cohort --where "age >= 18 and mean_fd < 0.5" --out adults
    """
    from ..cohort import Cohort
    from ..cohort.readers import select_scans

    refuse_existing(out)
    loaded = Cohort.load(cohort)
    loaded.verify()
    selected, warnings = select_scans(loaded, where, exclude)
    options.say_warnings(warnings)
    say(f"{len(selected):,} of {len(loaded):,} scans selected")
    for reason, n in selected.provenance["selected"][-1]["left_out"].items():
        say(f"  left out, {reason}: {n}")
    say(f"wrote {selected.save(out)!r} to {out}")


@options.add_command(None, "abide", fetch_app)
def fetch_abide_(
    out: options.Out,
    atlas: Annotated[str, "Atlas: aal or cc200."] = "aal",
    data_dir: Annotated[Path | None, "Folder for the downloaded files; by default nilearn's data folder."] = None,
    n_subjects: Annotated[
        settings.Participants | None, "Import only this many participants, the first ones of the release."
    ] = None,
    digests: Annotated[
        Path | None,
        "File of SHA-256 digests in the format of sha256sum. If it exists, downloaded files are compared with "
        "it; otherwise their digests are written to it.",
    ] = None,
) -> None:
    """Download ABIDE I (Preprocessed Connectomes Project, C-PAC pipeline) and write it as a cohort."""
    from ..cohort.readers import fetch_abide, summarise_import

    cohort = fetch_abide(atlas, out, data_dir=data_dir, n_subjects=n_subjects, digests=digests)
    say(summarise_import(cohort))
    say(f"wrote {cohort!r} to {out}")


@options.add_command(DATA)
def simulate(
    out: options.Out,
    sites: Annotated[settings.Count, "Number of sites."] = 6,
    per_class: Annotated[settings.Participants, "Participants per class at an average site."] = 14,
    rois: Annotated[settings.SimulatedRois, "Number of ROIs, a multiple of four."] = 24,
    frames: Annotated[settings.SimulatedFrames, "Frames per scan at an average site."] = 140,
    sessions: Annotated[settings.Sessions, "Scans per participant."] = 1,
    session_sd: Annotated[
        settings.Spread, "SD of the coupling of a brain network across the sessions of a participant."
    ] = 0.0,
    seed: Annotated[settings.Seed, "Seed of the simulation."] = 0,
) -> None:
    """Simulate a multi-site cohort with a known ground truth.

    Each of four brain networks has one planted effect: a stable class effect, a short burst in patients, an effect
    whose direction differs between sites, or a scanner effect.
    """
    from ..cohort.simulate import Simulation
    from ..cohort.simulate import simulate as simulate_cohort

    refuse_existing(out)
    simulation = Simulation(sites, per_class, rois, frames, sessions=sessions, session_sd=session_sd, seed=seed)
    cohort = simulate_cohort(simulation).save(out)
    say(f"wrote {cohort!r} to {out}")


@options.add_command(DATA)
def audit(
    cohort: Annotated[Path, "Cohort folder."],
    companion: options.Companions = None,
    as_json: Annotated[bool, "--json", "Print the whole audit as JSON."] = False,
    setting: options.Sets = None,
) -> None:
    """Check a cohort for defects and propose exclusions, with reasons.

    The audit looks for duplicate scans, regions without signal and short scans.
    It reports how label, scan length and repetition time depend on the site,
    which covariates (age, sex, motion, ...) differ between the classes,
    and which protocols the number of sites allows.
    Change the rules with --set, for example --set min_frames=60.
    """
    from ..cohort import AuditRules, Cohort, format_audit
    from ..cohort import audit as audit_cohort
    from ..protocol.folds import describe_allowed_protocols

    given = {k.removeprefix("audit."): v for k, v in settings.parse_assignments(setting or []).items()}
    rules = settings.replace_values(AuditRules(), given, "audit.")
    loaded, *companions = [Cohort.load(folder) for folder in (cohort, *(companion or []))]
    for one in (loaded, *companions):
        one.verify()
    result = audit_cohort(loaded, rules, companions)
    if as_json:
        print(json.dumps(result.to_dict(), indent=1))
    else:
        say(format_audit(result))
        say("\nProtocols that the number of sites allows")
        for line in describe_allowed_protocols(loaded.select(result.keep)):
            say(f"  {line}")
