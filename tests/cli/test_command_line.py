"""The command line: what each command prints; what it refuses is in ``test_mistakes.py``."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import brio
from brio import Cohort
from brio.jobs.spec import JobSpec, list_settings
from brio.methods import list_methods, make_method
from brio.results.cohort import describe_cohort
from brio.storage import write_recorded
from commands import command, walk_commands


@pytest.fixture
def scans(here) -> Path:
    """A folder of scans as text beside the cohort and the job, with a table of three diagnoses."""
    cohort, folder = Cohort.load(here / "cohort"), here / "scans"
    folder.mkdir()
    lines = ["participant_id\tsite\tlabel\tdx"]
    for i in range(0, len(cohort), 3):
        np.savetxt(folder / f"{cohort.ids[i]}.txt", cohort.scan(i))
        lines.append(f"{cohort.ids[i]}\t{cohort.sites[i]}\t{cohort.labels[i]}\t{'abc'[i % 3 + cohort.labels[i]]}")
    (folder / "participants.tsv").write_text("\n".join(lines) + "\n")
    return folder


COMMANDS = [words for words, _ in walk_commands()]


@pytest.mark.parametrize("words", [(), *COMMANDS], ids=" ".join)
def test_help(words):
    said = command(*words, "--help").succeed()
    assert "Usage:" in said.out
    assert said.err == ""
    assert "Usage:" in command().refuse().text, "as without any word"


def test_the_commands_there_are():
    data, running = (
        {"import", "fetch", "simulate", "atlas", "select", "audit"},
        {"run", "tune", "study", "demo", "config"},
    )
    models, showing = (
        {"fit", "federate", "predict", "explain", "adapt"},
        {"status", "table", "compare", "report", "verify"},
    )
    lists = {"methods", "settings", "studies", "version"}
    assert {words[0] for words in COMMANDS} == data | running | models | showing | lists
    assert command("version") == command("--version") == (0, f"{brio.__version__}\n", "")


def test_methods_as_json():
    listed = {m["name"]: m for m in json.loads(command("methods", "--json").out)}
    assert list(listed) == [e.name for e in list_methods()]
    assert {"brio", "backbone", "ridge", "brio-wo-rs"} <= set(listed)
    facts = {"name", "family", "block", "summary", "needs", "provenance", "reference", "settings", "tuned_over"}
    assert all(set(m) == facts | {"transductive", "control"} for m in listed.values())
    assert all(m["summary"] and m["reference"] and m["provenance"] and m["family"] for m in listed.values())
    assert listed["core"]["needs"] == ["bold", "sites", "sex", "age"]
    origins = {"cepg": "our reading", "disc": "paper's intent (published code differs:", "fc-hgnn": "redesign ("}
    origins |= {"gcn": "as the published code reads", "gsat": "published code, with differences ("}
    for name, origin in origins.items():
        assert listed[name]["provenance"].startswith(origin)
    assert (listed["cepg"]["block"], listed["gsat"]["block"]) == ("our reading", "published code or equations")
    assert listed["coral"]["tuned_over"]["penalty"] == "0.1 to 10 (log)"
    controls = {m["name"] for m in listed.values() if m["control"]}
    assert controls == {"covariates-only", "length-only", "dead-rois-only"}
    settings = [("brio", "J", 4), ("brio", "variant", "full"), ("backbone", "lambda_env", 0.0)]
    for name, key, value in [*settings, ("brio-wo-tr", "variant", "w/o TR")]:
        assert listed[name]["settings"][key] == value


def test_audit_as_json(here):
    cohort = Cohort.load(here / "cohort")
    scans = [*(cohort.scan(i) for i in range(len(cohort))), cohort.scan(0)]
    sites, labels = [*cohort.sites, cohort.sites[0]], [*cohort.labels, 1 - cohort.labels[0]]
    copied = Cohort.from_scans(scans, site=sites, label=labels, participant_id=[*cohort.ids, "copy"])
    copied.save(here / "copied")
    said = command("audit", "copied", "--json", "--set", "min_class=30", "--set", "audit.min_frames=41").succeed()
    found = json.loads(said.out, parse_constant=pytest.fail)  # NaN is not JSON
    assert found["fingerprint"] == copied.fingerprint
    assert set(found["exclusions"]) == {"copy", cohort.ids[0]}
    assert (found["rules"]["min_class"], found["rules"]["min_frames"]) == (30, 41)
    assert len(found["small_class"]) == 5
    assert found["n_before"] - found["n_after"] == 2


def test_an_atlas_and_groups_of_ones_own(here, scans):
    """Repeated names, a global signal and three diagnoses, from files to a cohort that can be drawn."""
    names = [f"r{u}" for u in range(6)] + ["r0", "GS"]
    for path in scans.glob("sim*.txt"):
        path.write_text(" ".join(names) + "\n" + path.read_text())
    table = scans / "participants.tsv"
    table.write_text("c".join(table.read_text().rsplit("b", 1)))  # the last b is a c
    words = ["--label-column", "dx", "--patient", "b", "--patient", "c", "--control", "a", "--drop-roi", "GS"]
    said = command("import", "table", "scans", *words, "--out", "plain").succeed()
    assert "add coordinates with 'brio atlas plain TABLE --out COHORT2'" in said.out
    plain = Cohort.load("plain")
    assert plain.classes == ("a", "b/c")
    given = plain.provenance["options"]
    assert (given["patient"], given["control"]) == (["b", "c"], "a")
    assert plain.labels.tolist() == plain.participants["dx"].isin(["b", "c"]).astype(int).tolist()
    assert "b/c" in command("audit", "plain").out
    rows = [f"{u}\t{-u}\tnet{u % 2}\t{2 * u}\t{name}" for u, name in enumerate([*names[:6], "r0_2"])]
    (here / "rois.tsv").write_text("\n".join(["x\ty\tnetwork\tz\tname", *rows[::-1]]) + "\n")
    said = command("import", "table", "scans", *words, "--atlas-table", "rois.tsv", "--out", "tabled").succeed()
    assert "adds them" not in said.out
    said = command("atlas", "plain", "rois.tsv", "--out", "named").succeed()
    assert "7 ROIs matched by name; columns: name, x, y, network, z" in said.out
    tabled, named = Cohort.load("tabled"), Cohort.load("named")
    np.testing.assert_array_equal(tabled.frames[:, ::-1], named.frames)
    assert named.atlas.rois.sort_values("x").to_dict("list") == tabled.atlas.rois.sort_values("x").to_dict("list")
    assert describe_cohort(named)["rois"]["xyz"] == [[u, -u, 2 * u] for u in range(7)]
    # a model of one cohort reads raw files by its own table of ROIs, whatever their order of columns
    assert command("fit", "tabled", "--method", "ridge", "--out", "model", "--keep-all", "--quiet").status == 0
    predict = ["predict", "model", "scans", "--drop-roi", "GS", "--reestimates", 4]
    said = command(*predict, "--atlas", "x", "--out", "p")
    assert "reorder the columns, or give the rois.tsv of the model with --atlas-table" in said.err
    said = command("predict", "model", "named", "--out", "p")
    assert "with --atlas-table and the files from which the cohort was imported" in said.err
    command(*predict, "--atlas-table", "model/rois.tsv", "--out", "p").succeed()
    assert "--drop-roi" in command("predict", "model", "scans", "--out", "q").err


def test_table_says_what_is_not_as_usual(here):
    words = ["--set", "protocol.validation_sites=0", "--set", "choose_by=source-sites", "--out", "unusual", "--quiet"]
    assert command("run", "cohort", "--method", "ridge", *words).status == 0
    row = [cell.strip() for cell in command("table", "unusual").out.splitlines()[2][1:-1].split("|")]
    assert row[-3] == "choose_by=source-sites"
    assert row[-1] == "no validation sites", "one seed is all there is of them"


def test_table_with_the_papers_figures_and_all_runs_as_csv(here):
    summary = json.loads((here / "job" / "summary.json").read_text())
    known = {**summary, "cohort": "abide-aal116", "methods": {"gcn": summary["methods"]["ridge"]}}
    rows_of_gcn = (here / "job" / "results.csv").read_text().replace(",ridge,", ",gcn,")
    write_recorded(here / "other", {"summary.json": json.dumps(known), "results.csv": rows_of_gcn})
    assert command("table", "job", "--figure", "sites.pdf").succeed().err == ""
    assert (here / "sites.pdf").read_bytes().startswith(b"%PDF")
    said = command("table", "job", "other", "--paper", "--csv", "all.csv")
    lines = said.out.split("\n\n")[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    column = head.index("paper's AUC")
    assert {row[2]: row[column : column + 2] for row in rows} == {
        "gcn": ["61.9 ± 10.3", "56.1 ± 9.7"],
        "ridge": ["-", "-"],
    }
    one = (here / "job" / "results.csv").read_text().splitlines()
    assert len((here / "all.csv").read_text().splitlines()) == 2 * len(one) - 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there(here):
    for words in (["run", "cohort", "--method", "ridge"], ["demo"]):
        assert "no usable GPU" in command(*words, "--device", "cuda", "--quiet", "--out", "new").refuse().err
        assert not (here / "new").exists()


# ---------------------------------------------------------------- what brio settings says of each


def test_every_setting_is_listed_with_its_meaning_and_a_default_that_is_accepted():
    listed = list_settings()
    assert [one.key for group in listed.values() for one in group if not one.meaning] == []
    having = {(method, one.key) for one in listed["methods"] for method in one.methods}
    assert having == {(entry.name, key) for entry in list_methods() for key in entry.settings if key not in entry.fixed}
    assert sum(bool(entry.fixed) for entry in list_methods()) >= 8  # variants
    settings = {one.key: one.default for part in ("protocol", "audit", "harmonise") for one in listed[part]}
    spec, default = JobSpec("cohort", settings=settings), JobSpec("cohort")
    assert spec.protocol_settings == default.protocol_settings
    assert spec.audit_rules == default.audit_rules
    assert spec.harmonisation_rule == default.harmonisation_rule


@pytest.mark.parametrize("name", ["ridge", "brio", "deci"])
def test_the_defaults_of_a_method_are_read_as_they_are_listed(name):
    listed = list_settings(name)[f"method {name}"]
    assert make_method(name, {one.key: one.default for one in listed}).settings == make_method(name).settings


def test_the_command_lists_a_variant_with_what_its_name_fixes():
    said = command("settings", "backbone", "--json")
    listed = {one["key"]: one for one in json.loads(said.out)}
    assert (listed["lambda_env"]["default"], listed["lambda_env"]["fixed"]) == ("0.0", True)
    assert listed["audit.min_frames"]["default"] == "40"
    assert listed["harmonise.kind"]["values"] == "combat, none or residualise"
    text = " ".join(command("settings", "coral").out.split())
    assert "penalty" in text
    assert "tuned over 0.1 to 10 (log)" in text
    everything = command("settings").out
    assert "audit.min_frames" in everything
    assert "backbone" in everything
