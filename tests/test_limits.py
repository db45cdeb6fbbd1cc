"""The limits of CONTRIBUTING.md: sizes of functions and files, and where argparse may be used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.source_files import relative, sources, tree_of

SOURCES = ("bilm", "launch", "data_tools", "downstream", "experiments", "benchmarks", "docs")
MAX_FUNCTION_LINES = 50
MAX_PARAMETERS = 6
MAX_FILE_LINES = 300
MAX_TOP_LEVEL_MODULES = 8  # directly in bilm/
PAGE = ROOT / "downstream" / "explorer" / "page"
NOT_COUNTED = {"self", "cls", "ctx"}
# The constructors of scikit-learn estimators have one parameter per setting.
ESTIMATORS = ("downstream/estimators.py", "downstream/predictors/pair_estimator.py")
# Triton kernels have one parameter per array and size, as C functions do.
KERNEL_DECORATOR = "triton.jit"
# Modules that may use argparse, besides those with a `main`: they define the flags of commands.
COMMANDS = ("bilm/commands/", "downstream/settings/flags.py")
LIBRARY_PACKAGES = (
    "bilm",
    "data_tools/reading",
    "data_tools/building",
    "data_tools/demo",
    "downstream",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, Function):
            yield node


def parameters(function: Function) -> list[str]:
    args = function.args
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return [argument.arg for argument in named if argument.arg not in NOT_COUNTED]


@pytest.mark.parametrize("path", sources(*SOURCES), ids=relative)
def test_functions_are_small(path: Path) -> None:
    for function in functions(path):
        lines = (function.end_lineno or 0) - function.lineno + 1
        assert lines <= MAX_FUNCTION_LINES, f"{function.name} has {lines} lines"
        is_estimator = relative(path) in ESTIMATORS and function.name == "__init__"
        decorators = (ast.unparse(decorator) for decorator in function.decorator_list)
        is_kernel = any(name.startswith(KERNEL_DECORATOR) for name in decorators)
        count = 0 if is_estimator or is_kernel else len(parameters(function))
        assert count <= MAX_PARAMETERS, f"{function.name} has {count} parameters"


@pytest.mark.parametrize("path", sources(*SOURCES, "tests"), ids=relative)
def test_files_are_small(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_FILE_LINES, f"{lines} lines; split it by subject"


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=relative)
def test_files_of_the_page_are_small(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_FILE_LINES, f"{len(lines)} lines; split it by subject"


@pytest.mark.parametrize("path", sources(*LIBRARY_PACKAGES), ids=relative)
def test_library_code_does_not_use_parsed_arguments(path: Path) -> None:
    is_command = any(
        isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree_of(path).body
    )
    if is_command or relative(path).startswith(COMMANDS):
        return
    uses = [
        n.lineno
        for n in ast.walk(tree_of(path))
        if isinstance(n, ast.Attribute) and n.attr == "Namespace"
    ]
    assert not uses, f"argparse.Namespace in lines {uses}; pass a dataclass"


@pytest.mark.parametrize("path", sources(*SOURCES), ids=relative)
def test_calls_do_not_splice_literal_tuples(path: Path) -> None:
    spliced = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        for argument in node.args
        if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple)
    ]
    assert not spliced, f"lines {spliced}: pass the arguments directly"


def test_few_modules_are_directly_in_bilm() -> None:
    assert len(list((ROOT / "bilm").glob("*.py"))) <= MAX_TOP_LEVEL_MODULES
