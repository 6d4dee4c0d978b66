"""``brio settings`` says of every key what it is, from the classes that define it."""

import json

import pytest

from brio.jobs.spec import JobSpec, list_settings
from brio.methods import list_methods, make_method


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


def test_the_command_lists_a_variant_with_what_its_name_fixes(brio):
    said = brio("settings", "backbone", "--json")
    listed = {one["key"]: one for one in json.loads(said.out)}
    assert (listed["lambda_env"]["default"], listed["lambda_env"]["fixed"]) == ("0.0", True)
    assert listed["audit.min_frames"]["default"] == "40"
    assert listed["harmonise.kind"]["values"] == "combat, none or residualise"
    text = " ".join(brio("settings", "coral").out.split())
    assert "penalty" in text
    assert "tuned over 0.1 to 10 (log)" in text
    everything = brio("settings").out
    assert "audit.min_frames" in everything
    assert "backbone" in everything
