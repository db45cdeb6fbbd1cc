"""Tests of tests/banned_code.py, and its application to all sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.banned_code import violations
from tests.conftest import ROOT

PACKAGES = ("bilm", "data_tools", "downstream", "launch", "experiments", "benchmarks")
# Modules that import public names from a table of their own.
IMPORT_FROM_TABLE = ("bilm/__init__.py", "bilm/commands/main.py", "downstream/__init__.py")


@pytest.mark.parametrize(
    "path",
    sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")),
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_sources_have_no_banned_code(path: Path) -> None:
    imports_by_table = str(path.relative_to(ROOT)) in IMPORT_FROM_TABLE
    assert violations(path.read_text(encoding="utf-8"), imports_by_table) == []


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
def test_finds_banned_code(source: str) -> None:
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
def test_accepts_harmless_code(source: str) -> None:
    assert violations(source) == []
