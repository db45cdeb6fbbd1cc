"""A demo corpus and a finished run on it, which tests only read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.forking import train_forked
from tests.launch.launching import build_demo_corpus, end_started


@pytest.fixture(autouse=True)
def _end_started_processes() -> Iterator[None]:
    yield
    end_started()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_demo_corpus(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="session")
def sampled(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one rank and the sampled softmax."""
    output = tmp_path_factory.mktemp("sampled") / "run"
    train_forked(corpus, output)
    return output
