"""Requests that are derived from the OpenAPI description of the service."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from downstream.explorer.api import AppSettings, create_app
from downstream.explorer.security import Access
from tests.bilm.embedding.elmo_models import tiny
from tests.downstream.explorer.small_models import load, make_index

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> object:
    index = make_index(tmp_path_factory.mktemp("fuzz"), tiny())
    settings = AppSettings(Access(names=["testserver"]))  # the name that schemathesis uses
    app = create_app(load(index), settings)
    return schemathesis.openapi.from_asgi("/openapi.json", app)


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@hypothesis_settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_valid_and_invalid_requests_never_fail(case: object) -> None:
    answer = case.call()  # type: ignore[attr-defined]
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    case.validate_response(  # type: ignore[attr-defined]
        answer,
        checks=[
            schemathesis.checks.not_a_server_error,
            schemathesis.checks.response_schema_conformance,
        ],
    )
