"""The figures of benchmarks/serving.py and search.py on small inputs; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.launch]


def figures_of(name: str, *flags: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, f"benchmarks/{name}", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_answers_under_load_are_those_of_single_requests() -> None:
    pytest.importorskip("fastapi", reason="the service needs: pip install 'bilm[serve]'")
    flags = ["--sentences", "12", "--clients", "6", "--requests", "40", "--rounds", "1"]
    one, many, call, *ratios, memory = figures_of("serving.py", *flags, "--max-spread", "9")
    assert (one["contender"], one["answers"], one["wrong_answers"]) == ("1 client", 12, 0)
    assert (many["contender"], many["answers"], many["wrong_answers"]) == ("6 clients", 12, 0)
    assert call["contender"] == "one call of Embedder.embed"
    assert [own["than"] for own in ratios] == ["1 client", call["contender"]]
    assert (memory["requests"], memory["wrong_answers"]) == (40, 0)
    assert len(memory["memory_mib"]) == 10


def test_search_equals_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    _, compared = figures_of("search.py", "--rows", "20000", "--dim", "32", "--queries", "5")
    assert compared["equal_to_scikit_learn"] == 5
    assert compared["largest_difference_of_cosines"] < 1e-5
