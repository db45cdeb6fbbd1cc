"""The Python sources of the project, parsed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.conftest import ROOT


def sources(*directories: str) -> list[Path]:
    """Return the Python files under these directories of the repository, sorted."""
    return sorted(path for name in directories for path in (ROOT / name).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the full name of every module that a file imports, at any level of nesting."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def relative(path: Path) -> str:
    """Return a path as messages and test names show it."""
    return str(path.relative_to(ROOT))
