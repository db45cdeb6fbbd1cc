"""The rules of the house that a reader would otherwise have to police: who imports whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.banned_code import violations
from tests.conftest import ROOT

PACKAGES = ("bilm", "data_tools", "downstream", "launch", "experiments")
ALLOWED = {
    "bilm": {"bilm"},
    "data_tools": {"bilm", "data_tools"},
    "downstream": {"bilm", "downstream"},
    "launch": {"bilm", "launch"},
    "experiments": {"bilm", "downstream", "experiments"},
}
TORCH_FREE = ("bilm.training.config", "bilm.corpus.batches", "bilm.text.tokenizers")


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
    assert homes == {"bilm/distributed/engine.py"}, homes


LADDERS = {
    "bilm": (
        *("errors", "files", "text", "corpus", "kernels", "model", "pretrained", "distributed"),
        *("training", "embedding", "parity", "commands"),
    ),
    "data_tools": ("reading", "building", "demo", "flags"),
    "downstream": (
        *("settings", "texts", "features", "heads", "tasks", "training", "reports"),
        *("classifier", "estimators", "baselines", "analyses"),
    ),
}


def rung(package: str, room: str) -> int:
    ladder = LADDERS[package]
    return ladder.index(room) if room in ladder else len(ladder)


@pytest.mark.parametrize("package", LADDERS)
def test_imports_only_go_down_the_ladder(package: str) -> None:
    upward = set()
    for path in sorted((ROOT / package).rglob("*.py")):
        here = rung(package, path.relative_to(ROOT / package).parts[0].removesuffix(".py"))
        for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            if name.startswith(f"{package}.") and rung(package, name.split(".")[1]) > here:
                upward.add(f"{path.relative_to(ROOT)} imports {name}")
    assert not upward


BY_TABLE = ("bilm/__init__.py", "downstream/__init__.py")  # public names, from a table of ours


@pytest.mark.parametrize(
    "path",
    [*sources(), *sorted((ROOT / "benchmarks").glob("*.py"))],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_nothing_from_a_file_is_run(path: Path) -> None:
    by_table = str(path.relative_to(ROOT)) in BY_TABLE
    assert violations(path.read_text(encoding="utf-8"), by_table) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import joblib",
        "import yaml\nyaml.safe_load(x)",
        "import torch\ntorch.load(f)",
        "import torch as t\nt.load(f)",
        "import torch\nread = torch.load",
        "from torch import load",
        "from torch import load as read",
        "from torch import jit\njit.load(f)",
        "import torch.jit\ntorch.jit.load(f)",
        "from torch.serialization import load",
        "import torch\ntorch.hub.load('a', 'b')",
        "import torch\ngetattr(torch, 'load')(f)",
        "import torch\ngetattr(torch, name)(f)",
        "import numpy as np\nnp.load(f)",
        "import numpy as np\nnp.load(f, allow_pickle=True)",
        "from numpy import load\nload(f, allow_pickle=flag)",
        "import numpy as np\nnp.lib.format.read_array(f)",
        "eval('1')",
        "e = eval",
        "exec(code)",
        "compile(code, 'a', 'exec')",
        "import builtins\nbuiltins.eval('1')",
        "import builtins\ngetattr(builtins, 'ev' + 'al')",
        "__import__('pickle')",
        "from importlib import import_module\nimport_module('pickle')",
        "from importlib import import_module\nimport_module(name)",
        "import importlib as i\ni.import_module(name)",
        "import os\nos.system('ls')",
        "from os import system",
        "from os import popen as run",
        "import os\nos.execvp('ls', ['ls'])",
        "import subprocess\nsubprocess.run(['ls'], shell=True)",
        "import subprocess\nsubprocess.run(['ls'], shell=flag)",
        "import subprocess\nsubprocess.run(['ls'], **options)",
        "import subprocess as s\ns.Popen('ls -l')",
        "from subprocess import run\nrun(f'ls {name}')",
        "from subprocess import getoutput",
        "import tarfile\ntarfile.open(f).extractall()",
        "import pandas\npandas.read_pickle(f)",
        "import torch.distributed as dist\ndist.broadcast_object_list(x)",
        "engine.load_checkpoint(path)",
    ],
)
def test_the_ban_has_no_such_hole(source: str) -> None:
    assert violations(source) != []


@pytest.mark.parametrize(
    "source",
    [
        "import re\nre.compile('a')",
        "model.eval()",
        "import json\njson.load(f)",
        "import numpy as np\nnp.load(f, allow_pickle=False)",
        "import subprocess\nsubprocess.run([compiler, '--version'], shell=False)",
        "import torch\ngetattr(torch, 'float32')",
        "from importlib import import_module\nimport_module('bilm.training.config')",
    ],
)
def test_the_ban_lets_plain_code_be(source: str) -> None:
    assert violations(source) == []


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
