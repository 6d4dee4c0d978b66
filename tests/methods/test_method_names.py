"""Methods by name: what a name fixes, and what a wrong name or setting says."""

import pytest

from brio.errors import BrioError
from brio.methods import list_methods, make_method
from brio.methods.brio import BrioSettings


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
    with pytest.raises(BrioError, match="brio"):
        make_method("bio")
