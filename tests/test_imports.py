"""The import rules of docs/architecture.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.source_files import imported_modules, relative, sources, tree_of

PACKAGES = ("bilm", "data_tools", "downstream", "launch", "experiments")
ALLOWED = {
    "bilm": {"bilm"},
    "data_tools": {"bilm", "data_tools"},
    "downstream": {"bilm", "downstream"},
    "launch": {"bilm", "launch"},
    "experiments": {"bilm", "downstream", "experiments"},
}
# From low to high; modules that are not listed are commands, which are above all others.
LADDERS = {
    "bilm": (
        "errors",
        "extras",
        "files",
        "text",
        "corpus",
        "kernels",
        "model",
        "pretrained",
        "distributed",
        "training",
        "embedding",
        "parity",
        "commands",
    ),
    "data_tools": ("reading", "building", "demo", "flags"),
    "downstream": (
        "settings",
        "texts",
        "features",
        "heads",
        "tasks",
        "training",
        "reports",
        "predictors",
        "classifier",
        "estimators",
        "baselines",
        "analyses",
        "explorer",
    ),
}
TORCH_FREE_PACKAGES = ("bilm/files", "bilm/text", "bilm/corpus", "data_tools")
TORCH_FREE_MODULES = ("bilm.errors", "bilm.extras", "bilm.model.config", "bilm.training.config")


@pytest.mark.parametrize("path", sources(*PACKAGES), ids=relative)
def test_imports_only_allowed_packages(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    for name in imported_modules(path):
        top = name.split(".")[0]
        assert top not in PACKAGES or top in ALLOWED[package], f"imports {name}"


def test_only_the_engine_imports_deepspeed() -> None:
    importers = {
        relative(path)
        for path in sources(*PACKAGES)
        if any(name.split(".")[0] == "deepspeed" for name in imported_modules(path))
    }
    assert importers == {"bilm/distributed/engine.py"}


def rank(package: str, name: str) -> int:
    """Return the position of a sub-package or module in the ladder of its package."""
    ladder = LADDERS[package]
    return ladder.index(name) if name in ladder else len(ladder)


@pytest.mark.parametrize("path", sources(*LADDERS), ids=relative)
def test_imports_only_lower_packages(path: Path) -> None:
    package, inside = path.relative_to(ROOT).parts[:2]
    if inside == "__init__.py":
        return  # public names, imported on first use
    here = rank(package, inside.removesuffix(".py"))
    for name in imported_modules(path):
        if name.startswith(f"{package}."):
            assert rank(package, name.split(".")[1]) <= here, f"imports {name}"


@pytest.mark.parametrize("path", sources("bilm/embedding"), ids=relative)
def test_embedding_does_not_import_training(path: Path) -> None:
    assert not any(name.startswith("bilm.training") for name in imported_modules(path))


@pytest.mark.parametrize("path", sources(*LADDERS), ids=relative)
def test_imports_no_private_names(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            private = [alias.name for alias in node.names if alias.name.startswith("_")]
            assert not private, f"imports {private} from {node.module}"


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sources(*LADDERS)
        if path.name == "__init__.py" and path.parent.parent != ROOT
    ],
    ids=relative,
)
def test_init_is_only_a_docstring(path: Path) -> None:
    tree = tree_of(path)
    assert ast.get_docstring(tree)
    assert len(tree.body) == 1


def test_lower_packages_do_not_import_torch() -> None:
    modules = [
        relative(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for path in sources(*TORCH_FREE_PACKAGES)
    ]
    code = (
        "import sys, importlib\n"
        f"for name in {[*modules, *TORCH_FREE_MODULES]!r}:\n"
        "    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules and 'deepspeed' not in sys.modules, name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_public_names_resolve() -> None:
    import bilm
    import downstream

    for package in (bilm, downstream):
        for name in package.__all__:
            assert getattr(package, name) is not None
        with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
            _ = package.Nothing
