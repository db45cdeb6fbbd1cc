"""The backends that can be tested here."""

from __future__ import annotations

import subprocess

import pytest

from bilm.kernels import backends, c_library


def has_compiler() -> bool:
    try:
        c_library.library()
    except (OSError, subprocess.SubprocessError):
        return False
    return True


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C compiler")


@pytest.fixture(params=[pytest.param("c", marks=needs_compiler), "torch"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test once per backend."""
    monkeypatch.setattr(backends, "requested", lambda: request.param)
    return str(request.param)
