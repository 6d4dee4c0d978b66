"""One run of all studies, shared by the tests."""

import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
from study_contexts import SIMULATION, context_on, lay_out, make_paper, read

from brio.cohort import Cohort
from brio.cohort.simulate import simulate
from brio.studies import StudyContext, study

sys.path.append(str(Path(__file__).parents[1] / "ordinary"))  # whose checks of studies are applied here too


@pytest.fixture(scope="session", autouse=True)
def laid_out() -> Iterator[None]:
    """Figures of studies are laid out, not rendered, which takes longest; one study is rendered, see RENDERED."""
    with mock.patch.object(study, "render_figure", lay_out):
        yield


@pytest.fixture(scope="session")
def cohort() -> Cohort:
    return simulate(SIMULATION)


@pytest.fixture(scope="session")
def all_studies(tmp_path_factory) -> tuple:
    """A folder, and what :func:`study_contexts.make_paper` took and found there; never changed."""
    root = tmp_path_factory.mktemp("studies") / "paper"
    return root, *make_paper(root)


@pytest.fixture(scope="session")
def paper(all_studies) -> Path:
    return all_studies[0]


@pytest.fixture(scope="session")
def seen(all_studies) -> dict:
    return all_studies[1]


@pytest.fixture(scope="session")
def context(cohort, paper, tmp_path_factory) -> StudyContext:
    """A context of this process on a copy of the finished arms."""
    out = tmp_path_factory.mktemp("context") / "out"
    shutil.copytree(paper / "out", out)
    return context_on(cohort, out)


@pytest.fixture(scope="session")
def found(all_studies):
    """What a study found, before it was written."""
    return all_studies[2].__getitem__


@pytest.fixture(scope="session")
def table(paper):
    """A study's table as it was written."""

    @cache
    def reading(name: str) -> pd.DataFrame:
        return read(paper / "out" / "studies" / name / "table.csv")

    return reading
