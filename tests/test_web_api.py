"""The server answers any request as its OpenAPI description says; schemathesis generates the requests."""

from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks

from explorer import PAGE, app_of, served
from ffscope.web.guard import PAGE_TOKEN
from studies import copy_of

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
# The description needs no study.
OPERATIONS = [
    (method, path) for path, methods in app_of(Path("nowhere")).openapi()["paths"].items() for method in methods
]


@pytest.fixture(scope="module")
def described(explored, tmp_path_factory, tokenizer):
    """The description of a study's server, with its model."""
    folder = copy_of(explored, tmp_path_factory.mktemp("api")).folder
    with served(app_of(folder, tokenizer)) as address:
        yield schemathesis.openapi.from_url(f"{address}/openapi.json")


def test_every_page_has_a_described_twin():
    paths = {path for _, path in OPERATIONS}
    twins = {
        "/index.json",
        "/L{layer}.json",
        "/L{layer}/{number}.json",
        "/prompt.json",
        "/search.json",
        "/annotate.json",
    }
    assert twins <= paths


# schemathesis uses `random` internally, which hypothesis warns about.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.parametrize("examples", [12, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_answer_is_as_described(described, method, path, examples):
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=described[path][method].as_strategy())
    def every(case):
        case.call_and_validate(headers={PAGE_TOKEN: PAGE}, checks=CHECKS)

    every()
