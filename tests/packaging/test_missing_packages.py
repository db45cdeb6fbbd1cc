"""Commands in an environment without any optional package."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from bilm.commands.main import COMMANDS
from bilm.errors import MissingPackageError
from bilm.extras import EXTRAS, require
from tests.conftest import ROOT
from tests.packaging.cases import WITH_CLUSTER, WITH_EXTRA, WITHOUT_EXTRAS, write_files
from tests.packaging.environments import Environment, build_sdist, build_wheel, create

PACKAGES = {"sklearn": "scikit-learn"}  # where it is not the name of the module
NEEDS = [
    (extra, line)
    for cases in (WITH_EXTRA, WITH_CLUSTER)
    for extra, lines in cases.items()
    for line in lines
]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    wheel = build_wheel(build_sdist(tmp_path_factory.mktemp("build")))
    environment = create(tmp_path_factory.mktemp("bare"), wheel, without=EXTRAS)
    write_files(environment.work)
    return environment


def test_modules_are_in_their_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for module, extra in EXTRAS.items():
        names = [re.split(r"[<>=]", requirement)[0] for requirement in extras[extra]]
        assert PACKAGES.get(module, module) in names
    assert extras["all"] == ["bilm[train,data,parquet,dask,hub,downstream,serve]"]
    names = {"train", "data", "parquet", "dask", "hub", "downstream", "serve"}
    assert set(EXTRAS.values()) == names


def test_require_names_every_missing_module(monkeypatch: pytest.MonkeyPatch) -> None:
    require("this", "sklearn", "zstandard")
    for module in ("gensim", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackageError) as raised:
        require("this", "sklearn", "gensim", "zstandard")
    assert str(raised.value) == (
        "this requires gensim, zstandard; install it with pip install 'bilm[data,downstream]'"
    )
    assert isinstance(raised.value, ImportError)


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.parametrize("name", COMMANDS)
def test_help_needs_no_extra(bare: Environment, name: str) -> None:
    done = bare.run("bilm", *name.split(), "--help", PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: bilm {name} ")
    assert not imports_torch(done.stderr) or name == "parity"


def imports_torch(import_times: str) -> bool:
    return re.search(r"\| +torch$", import_times, re.MULTILINE) is not None


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.parametrize(("extra", "line"), NEEDS, ids=lambda value: value[:40])
def test_reports_missing_extra_at_the_start(bare: Environment, extra: str, line: str) -> None:
    files = set(bare.work.rglob("*"))
    done = bare.run("bilm", *line.split(), PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 2, done.stderr
    (error,) = (text for text in done.stderr.splitlines() if text.startswith("error: "))
    assert error.endswith(f"install it with pip install 'bilm[{extra}]'")
    assert not imports_torch(done.stderr)
    assert set(bare.work.rglob("*")) == files


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.parametrize("line", WITHOUT_EXTRAS, ids=lambda line: line[:40])
def test_works_without_extras(bare: Environment, line: str) -> None:
    bare.check("bilm", *line.split())


@pytest.mark.slow
@pytest.mark.launch
def test_train_reports_missing_extra(bare: Environment) -> None:
    done = bare.run("python", "-c", "import bilm; bilm.train('tiny.json')")
    assert "training requires deepspeed, psutil, tensorboard" in done.stderr
    assert not Path(bare.work / "new").exists()
