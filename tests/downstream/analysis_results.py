"""Read the results of an analysis in tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def analysis_results(directory: Path, picture: str) -> dict[str, Any]:
    """Check that the page has its plot, and return the contents of results.json."""
    assert (directory / picture).read_bytes().startswith(b"\x89PNG")
    assert picture in (directory / "report.md").read_text("utf-8")
    tree: dict[str, Any] = json.loads((directory / "results.json").read_text("utf-8"))
    return tree
