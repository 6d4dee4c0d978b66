"""Every number among the settings has a declared domain, which is checked wherever settings are made."""

import dataclasses
import json
import math

import pytest

from brio.cohort import AuditRules
from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from brio.estimator import BrioClassifier
from brio.federation import Terms
from brio.federation.messages import CalibratedScore, SiteScore
from brio.jobs.spec import JobSpec, list_settings
from brio.methods import list_methods
from brio.protocol import ProtocolSettings
from brio.settings import describe_kind, find_numbers, fit_value, read_number, replace_values, write_number
from brio.training import NeuralSettings
from commands import refuse

METHODS = {entry.method_class.Settings for entry in list_methods()}
CLASSES = sorted({*METHODS, AuditRules, ProtocolSettings, Simulation, JobSpec}, key=lambda one: one.__name__)
ABSURD = (math.nan, math.inf, -math.inf, 10**25, -(10**25), 10**5000, True, "many", [1])


def make_default(cls):
    return cls("nowhere") if cls is JobSpec else cls()


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_number_has_a_domain_that_holds_its_default_and_what_is_tuned(cls):
    defaults = make_default(cls)
    for name, kind in find_numbers(cls).items():
        words = describe_kind(kind)
        assert any(char.isdigit() for char in words), f"{cls.__name__}.{name} has no domain"
        assert describe_kind(read_number(json.loads(json.dumps(write_number(kind))))) == words
        fit_value(getattr(defaults, name), kind, name)
    for field in dataclasses.fields(cls):
        space = field.metadata.get("space")
        if space is not None and field.name in find_numbers(cls):
            for value in space.values:
                fit_value(value, find_numbers(cls)[field.name], field.name)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_absurd_values_are_refused_by_name_however_they_are_given(cls):
    defaults = make_default(cls)
    for k, (name, kind) in enumerate(find_numbers(cls).items()):
        for value in ABSURD:
            with pytest.raises(BrioError, match=f"^{name} ") as direct:
                fit_value(value, kind, f"{name} ")
            assert len(str(direct.value)) < 250
        with pytest.raises(BrioError, match=f"{name}'="):  # the class itself looks
            dataclasses.replace(defaults, **{name: ABSURD[k % len(ABSURD)]})
    if cls is not JobSpec:
        for text in ("nan", "1e400", "9" * 5000):
            with pytest.raises(BrioError, match=name) as told:
                replace_values(defaults, {name: text})
            assert len(str(told.value)) < 250


def test_the_numbers_of_a_users_own_settings_are_at_least_finite():
    @dataclasses.dataclass(frozen=True)
    class Own(NeuralSettings):
        sharpness: float = 1.0

        def __post_init__(self) -> None:
            """Forgets the checks of its parent."""

    refuse("setting 'sharpness'=inf: must be a finite number", replace_values, Own(), {"sharpness": "inf"})
    refuse("setting 'epochs'=0: must be a whole number from 1 to 100,000", replace_values, Own(), {"epochs": 0})
    assert replace_values(Own(), {"sharpness": "-1e20"}).sharpness == -1e20


def test_domains_are_listed_with_the_settings():
    listed = {one.key: one.values for group in list_settings("brio").values() for one in group}
    assert listed["J"] == "whole number from 1 to 512"
    assert listed["rho_g"] == "number above 0 and at most 1"
    assert listed["patience"] == "whole number from 1 to 100,000 or none"
    assert listed["protocol.validation_sites"] == "whole number from 0 to 10,000 or auto"


@pytest.mark.parametrize("options", [{"epochs": 10**12}, {"lambda_env": math.nan}, {"validation_sites": -1}])
def test_the_estimator_refuses_absurd_numbers(options):
    cohort = simulate(Simulation(n_sites=3, per_class=2, n_rois=8, frames=40))
    refuse(next(iter(options)), BrioClassifier("brio", device="cpu", **options).fit, cohort)


@pytest.mark.parametrize("cls", [Terms, SiteScore, CalibratedScore], ids=lambda cls: cls.__name__)
def test_every_number_that_sites_exchange_has_a_domain(cls):
    assert find_numbers(cls)
    for name, kind in find_numbers(cls).items():
        assert any(char.isdigit() for char in describe_kind(kind)), f"{cls.__name__}.{name} has no domain"
        for value in ABSURD:
            with pytest.raises(BrioError):
                fit_value(value, kind, name)
