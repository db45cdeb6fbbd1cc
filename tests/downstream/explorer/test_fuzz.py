"""Requests that are derived from the OpenAPI description of the service."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service needs: pip install 'bilm[serve]'")

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import response_schema_conformance

from downstream.explorer.api import AppSettings, create_app
from downstream.explorer.security import Access
from tests.bilm.embedding.elmo_models import tiny
from tests.downstream.explorer.small_models import load, make_index

pytestmark = pytest.mark.slow

OPERATIONS = (
    "GET /healthz",
    "GET /metrics",
    "GET /v1/model",
    "GET /v1/runs/{number}",
    "POST /v1/classify",
    "POST /v1/embed",
    "POST /v1/neighbours",
    "POST /v1/predict",
    "POST /v1/score",
    "POST /v1/tag",
)
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
WITHOUT_INPUT = ("/healthz", "/metrics", "/v1/model")  # no invalid requests can be derived


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    index = make_index(tmp_path_factory.mktemp("fuzz"), tiny())
    access = Access(names=["testserver"])  # the name that schemathesis uses
    app = create_app(load(index), AppSettings(access))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    found = [result.ok() for result in schema.get_all_operations()]
    return {f"{own.method.upper()} {own.path}": own for own in found}


def test_covers_all_operations(operations: dict[str, Any]) -> None:
    assert sorted(operations) == sorted(OPERATIONS)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", OPERATIONS)
def test_requests_never_fail(operations: dict[str, Any], name: str, mode: Any) -> None:
    operation = operations[name]
    if mode == schemathesis.GenerationMode.NEGATIVE and operation.path in WITHOUT_INPUT:
        return

    @settings(
        max_examples=30,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        answer = case.call()
        assert answer.status_code < 500, answer.text
        assert "Traceback" not in answer.text
        case.validate_response(answer, checks=[response_schema_conformance])

    check()
