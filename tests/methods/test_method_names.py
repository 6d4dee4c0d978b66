"""Methods by name: what a name fixes, and what a wrong name or setting says."""

import dataclasses
import json

import pytest

from brio.errors import BrioError
from brio.methods import Ridge, find_method, list_methods, make_method, variant
from brio.methods.brio import BrioSettings
from brio.methods.catalogue import describe_classes
from brio.methods.registry import BLOCKS, CATALOGUE, Provenance, rank_block


def test_names_fix_the_ablations():
    fixed = {
        name: make_method(name).settings
        for name in ("brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf", "brio-wo-qg")
    }
    assert {name: s.variant for name, s in fixed.items()} == {
        "brio-wo-rs": "w/o RS",
        "brio-wo-tr": "w/o TR",
        "brio-wo-sm": "w/o SM",
        "brio-wo-sf": "w/o SF",
        "brio-wo-qg": "w/o QG",
    }
    assert {s.lambda_env for s in fixed.values()} == {make_method("brio").settings.lambda_env}
    assert make_method("brio").settings.variant == "full"
    assert make_method("backbone").settings.lambda_env == 0
    assert {"brio", "backbone", "ridge", *fixed} <= {e.name for e in list_methods()}


def test_the_values_the_paper_gives_are_the_defaults():
    s = BrioSettings()
    assert (s.layers, s.d_h, s.d_e, s.J, s.d_t, s.d_qk, s.d_mlp) == (2, 64, 16, 4, 16, 32, 32)
    assert (s.temperature, s.assignment_iterations, s.rho_g) == (0.10, 60, 0.20)
    assert (s.learning_rate, s.weight_decay) == (3e-4, 1e-4)
    rule = s.block_rule
    assert (rule.subjects, rule.signals, rule.products) == (128, 24, 48)
    assert (rule.tau_ac, rule.largest_lag, rule.quantile, rule.l_min, rule.l_max) == (0.10, 30, 0.75, 2, 30)


def test_settings_are_read_by_type_and_what_a_name_fixes_cannot_be_set():
    made = make_method("brio", {"K": "3", "patience": "none", "mlp_bias": "false", "lambda_env": "0.25"})
    assert (made.settings.K, made.settings.patience, made.settings.mlp_bias) == (3, None, False)
    assert made.settings.lambda_env == 0.25
    with pytest.raises(BrioError, match="fixes 'lambda_env'"):
        make_method("backbone", {"lambda_env": 1.0})
    with pytest.raises(BrioError, match="epochs"):
        make_method("brio", {"epoch": 3})
    with pytest.raises(BrioError, match="heads"):  # which must divide the width
        make_method("gat", {"heads": 3})
    with pytest.raises(BrioError, match="brio"):
        make_method("bio")


def test_every_method_stands_in_one_block_of_the_tables():
    own = [e for e in list_methods() if not e.file]  # another test may have loaded a file of methods
    blocks = {block: [e.name for e in own if e.block == block] for block in BLOCKS}
    assert blocks["our reading"] == ["core-scaffold", "cepg", "disco", "agmgc", "core"]
    assert blocks["redesign"] == ["fc-hgnn"]
    assert blocks["controls"] == ["covariates-only", "length-only", "dead-rois-only"]
    assert blocks["linear"] == ["ridge", "logistic", "svm", "tangent-ridge", "fc-tangent-ridge", "log-ridge"]
    assert {"mlp", "gcn", "coral", "gsat", "disc", "brainood", "deci", "xg-gnn", "xg-gnn-published"} <= set(
        blocks["published code or equations"]
    )
    assert blocks["other methods"] == []
    mine = dataclasses.replace(find_method("mlp"), provenance=Provenance("a talk of mine"), family="mine")
    assert mine.block == "other methods"
    assert rank_block("of another version") == len(BLOCKS)


def test_a_variant_may_have_a_provenance_of_its_own():
    assert find_method("brainood-kl").provenance == find_method("brainood").provenance
    assert find_method("xg-gnn-published").provenance != find_method("xg-gnn").provenance
    assert make_method("xg-gnn-published").settings.published
    with pytest.raises(BrioError, match="fixes 'published'"):
        make_method("xg-gnn-published", {"published": False})


def test_a_variant_of_a_class_without_a_name_is_refused():
    class Nameless(Ridge):
        """Inherits the name of its parent."""

    with pytest.raises(BrioError, match="class Nameless has no name of its own"):
        variant("nameless-2", Nameless, "never", penalties=3)


def test_the_catalogue_says_what_the_classes_say():
    stored = json.loads(CATALOGUE.read_text("utf-8"))
    assert stored == describe_classes(), "run: python -m brio.methods.catalogue"
    assert [facts["name"] for facts in stored] == [e.name for e in list_methods() if not e.file][: len(stored)]
    for facts in stored:
        entry, made = find_method(facts["name"]), make_method(facts["name"])
        assert entry.settings == dataclasses.asdict(made.settings), "tuples stay tuples"
        assert entry.method_class is type(made)
