"""The rules of the house that a reader would otherwise have to police: who imports whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = ("bilm", "data_tools", "downstream", "launch")
ALLOWED = {
    "bilm": {"bilm"},
    "data_tools": {"bilm", "data_tools"},
    "downstream": {"bilm", "downstream"},
    "launch": {"bilm", "launch"},
}
TORCH_FREE = ("bilm.config", "bilm.characters", "bilm.vocabulary", "bilm.tokenizers", "bilm.atomic")
BANNED_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
BANNED_CALLS = {"eval", "exec"}


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
        top = name.split(".")[0]
        assert top not in PACKAGES or top in ALLOWED[package], f"{path.name} imports {name}"
        assert top not in BANNED_MODULES, f"{path.name} imports {name}"
        assert not (package == "data_tools" and top == "torch"), "data_tools needs no torch"


def test_one_module_talks_to_deepspeed() -> None:
    homes = {
        str(path.relative_to(ROOT))
        for path in sources()
        if any(
            name.split(".")[0] == "deepspeed"
            for name in imported(ast.parse(path.read_text("utf-8")))
        )
    }
    assert len(homes) <= 1, homes


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_is_evaluated_or_handed_to_a_shell(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            assert node.func.id not in BANNED_CALLS
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            assert (node.func.value.id, node.func.attr) != ("torch", "load")
            assert (node.func.value.id, node.func.attr) != ("os", "system")
        assert not any(
            keyword.arg == "shell"
            and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
            for keyword in node.keywords
        )


def test_what_needs_no_torch_imports_none() -> None:
    code = (
        "import sys, importlib\n"
        f"for name in {TORCH_FREE!r}: importlib.import_module(name)\n"
        "assert 'torch' not in sys.modules and 'deepspeed' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_public_names_resolve() -> None:
    import bilm

    for name in bilm.__all__:
        assert getattr(bilm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = bilm.Nothing
