"""When Triton is used, and the warning if it cannot be."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest
import torch

from bilm.kernels.triton_ops import availability


@pytest.fixture(autouse=True)
def _no_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    availability.available.cache_clear()
    yield
    availability.available.cache_clear()


def test_is_unavailable_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not availability.available()
    assert not caplog.records


def test_warns_once_if_triton_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "triton", None)
    for name in list(sys.modules):
        if name.startswith("bilm.kernels.triton_ops.") and name != availability.__name__:
            monkeypatch.delitem(sys.modules, name)
    with caplog.at_level(logging.WARNING):
        assert not availability.available()
        assert not availability.available()
    assert len(caplog.records) == 1
    assert "Triton cannot be used; using the slower PyTorch code" in caplog.text


def test_warns_if_a_kernel_is_wrong(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(device: str) -> None:
        raise RuntimeError(f"no compiler for {device}")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(availability, "_run_small_kernel", fail)
    assert not availability.available()
    assert "RuntimeError: no compiler for cuda" in caplog.text
