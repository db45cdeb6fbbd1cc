"""The built package, installed into a virtual environment without the checkout."""

from __future__ import annotations

import csv
import re
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import bilm
from tests.conftest import ROOT
from tests.launch.launching import events, free_port
from tests.packaging.environments import SOURCES, Environment, build_sdist, build_wheel, create

pytestmark = [pytest.mark.slow, pytest.mark.launch]
SMALL = (
    "model.characters.filters=[[1,4],[2,4]]",
    "model.lstm.dim=16",
    "model.lstm.projection_dim=8",
    "train.max_steps=10",
    "train.evaluation.every_steps=10",
    "train.log.every_steps=1",
    "deepspeed.train_batch_size=4",
    "train.timeout_seconds=120",
)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sdist(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    return build_wheel(sdist)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return create(tmp_path_factory.mktemp("installed"), wheel)


def test_sdist_contains_all_sources(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py"} <= names
    assert sources() <= names


def sources() -> set[str]:
    suffixes = (".py", ".c", ".h", ".json", ".typed", ".html", ".css", ".js", ".svg")
    paths = (path for name in SOURCES for path in (ROOT / name).rglob("*") if path.is_file())
    return {
        str(path.relative_to(ROOT))
        for path in paths
        if path.suffix in suffixes or path.is_relative_to(ROOT / "models")
    }


def test_wheel_contains_all_sources_and_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        fields = message_from_string(archive.read(metadata).decode())
        license_file = archive.read(metadata.replace("METADATA", "licenses/LICENSE")).decode()
    expected = {re.sub("^(configs|models)/", r"bilm/\1/", name) for name in sources()}
    assert names == {*expected, "bilm/py.typed"}
    assert fields["Version"] == bilm.__version__
    assert fields["License-Expression"] == "Apache-2.0"
    assert license_file == (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_is_imported_from_the_environment(installed: Environment) -> None:
    code = "import bilm, data_tools, downstream; print(bilm.__file__, downstream.__file__)"
    for path in installed.check("python", "-c", code).split():
        assert Path(path).is_relative_to(installed.packages)
    assert installed.check("bilm", "--version") == f"bilm {bilm.__version__}\n"


def test_runs_the_whole_pipeline(installed: Environment) -> None:
    run = installed.check
    run("bilm", "data", "generate-demo", "--output", "text", "--sentences", "300")
    texts = ("--input", "text/train.txt", "--heldout", "text/heldout.txt", "--workers", "2")
    run("bilm", "data", "build-corpus", "--tokenizer", "whitespace", *texts, "--output", "corpus")
    launcher = ("deepspeed", "--num_gpus", "2", f"--master_port={free_port()}")
    module = ("--module", "bilm.commands.pretrain", "--config", "demo")
    run(*launcher, *module, "data.corpus=corpus", "train.output_dir=run", *SMALL)
    assert [event["step"] for event in events(installed.work / "run", "train")] == [*range(1, 11)]
    assert "mean" in run("bilm", "evaluate", "--model", "run", "--corpus", "corpus", "--rows", "2")
    run("bilm", "export", "run", "--model", "model", "--published", "published")
    run("bilm", "embed", "--model", "model", "--input", "text/heldout.txt", "--output", "v.hdf5")
    tables = ("--train", "text/train.csv", "--test", "text/test.csv", "--tokenized")
    heads = ("--model", "model", "--mix", "average", "--epochs", "1", "--output", "classifier")
    assert "test accuracy" in run("bilm", "tasks", "classify", *heads, *tables)
    files = ("--classifier", "classifier", "--input", "text/test.csv", "--output", "out.csv")
    run("bilm", "tasks", "predict", *files)
    with open(installed.work / "out.csv", encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file))) > 10
