"""The choice of the backend by environment, tensors and compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bilm.errors import ConfigError
from bilm.kernels import backends
from bilm.kernels.triton_ops import availability
from tests.bilm.conftest import needs_compiler
from tests.conftest import ROOT

X = torch.zeros(2)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BILM_KERNELS", raising=False)
    monkeypatch.delenv("BILM_NATIVE", raising=False)
    # without the cache, so that each test reads its own environment
    monkeypatch.setattr(backends, "requested", backends.requested.__wrapped__)


@needs_compiler
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "c"),
        ({"BILM_KERNELS": "auto"}, "c"),
        ({"BILM_KERNELS": ""}, "c"),
        ({"BILM_KERNELS": "c"}, "c"),
        ({"BILM_KERNELS": "torch"}, "torch"),
        ({"BILM_NATIVE": "0"}, "torch"),
        ({"BILM_NATIVE": "1"}, "c"),
        ({"BILM_KERNELS": "c", "BILM_NATIVE": "0"}, "c"),
    ],
)
def test_environment_selects_backend(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert backends.choose(X, X.double()) == expected


def test_rejects_unknown_value_and_lists_allowed_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILM_KERNELS", "cuda")
    with pytest.raises(
        ConfigError, match=r"BILM_KERNELS is 'cuda'; .*one of: auto, torch, c, triton$"
    ):
        backends.choose(X)


@pytest.mark.parametrize("requested", ["auto", "c"])
@pytest.mark.parametrize("other", [X.bfloat16(), X.long(), X.to("meta")])
def test_unsupported_tensors_use_torch(
    other: torch.Tensor, requested: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BILM_KERNELS", requested)
    assert backends.choose(X, other) == "torch"


def test_autocast_sets_dtype_of_products() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert backends.product_dtype(X) == torch.bfloat16
    assert backends.product_dtype(X) == torch.float32


USE = """
import logging, torch; logging.basicConfig()
from bilm.errors import ConfigError
from bilm.kernels import backends
from bilm.kernels.triton_ops import availability
try:
    print(backends.choose(torch.zeros(1)), backends.choose(torch.zeros(1)))
except ConfigError as error:
    print("ConfigError:", error)
"""


def run(cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", USE],
        cwd=ROOT,
        env={**os.environ, "BILM_CACHE": str(cache), "PATH": "/nowhere", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.mark.parametrize(
    ("compiler", "reason"), [("/bin/false", "failed|non-zero"), ("nonesuch", "no C compiler")]
)
def test_uses_torch_without_compiler(compiler: str, reason: str, tmp_path: Path) -> None:
    done = run(tmp_path, CC=compiler)
    assert done.stdout == "torch torch\n"
    assert done.stderr.count("the C kernels cannot be built") == 1
    assert re.search(reason, done.stderr)
    done = run(tmp_path, CC=compiler, BILM_KERNELS="c")
    assert done.stdout.startswith("ConfigError: BILM_KERNELS is c, but the C kernels cannot")
    assert re.search(reason, done.stdout)
    done = run(tmp_path, CC=compiler, BILM_KERNELS="torch")
    assert (done.stdout, done.stderr) == ("torch torch\n", "")


def test_rejects_triton_where_it_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILM_KERNELS", "triton")
    monkeypatch.setattr(availability, "available", lambda: False)
    with pytest.raises(ConfigError, match=r"BILM_KERNELS is triton, but Triton cannot be used"):
        backends.choose(X)


@needs_compiler
@pytest.mark.parametrize(
    ("requested", "interpreted", "expected"),
    [("triton", "1", "triton"), ("triton", "0", "c"), ("auto", "1", "c"), ("c", "1", "c")],
)
def test_tensors_on_the_cpu_use_triton_only_in_its_interpreter(
    requested: str, interpreted: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BILM_KERNELS", requested)
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    monkeypatch.setattr(availability, "available", lambda: True)
    assert backends.choose(X) == expected
    assert backends.choose(X.double()) == "c"
