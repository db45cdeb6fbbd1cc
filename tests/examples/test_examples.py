"""Run every script of examples/, and the notebook."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.launch]

TIMEOUT_SECONDS = 500


def run_example(name: str, *arguments: str, cwd: Path = ROOT) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_examples_are_tested() -> None:
    tested = set(re.findall(r'"(\w+\.(?:py|ipynb))"', Path(__file__).read_text(encoding="utf-8")))
    programs = {p.name for p in (ROOT / "examples").iterdir() if p.suffix in (".py", ".ipynb")}
    assert tested == programs


def similarities(output: str) -> list[list[list[float]]]:
    """Return the matrix of each layer."""
    layers = output.split("layer ")[1:]
    return [
        [[float(x) for x in row.split()] for row in re.findall(r"\[ ?([^\[\]]+)\]", layer)]
        for layer in layers
    ]


def test_word_vectors(tmp_path: Path) -> None:
    first, *_, top = similarities(run_example("word_vectors.py"))
    assert all(value == 1.0 for row in first for value in row)
    assert top[0][1] > top[0][2]  # two river banks, and a bank that lends money
    text = tmp_path / "text.txt"
    text.write_text("A spring day .\nThe spring of the watch broke .\n", encoding="utf-8")
    assert len(similarities(run_example("word_vectors.py", str(text), "--word", "spring"))) == 3


def test_nearest_neighbours() -> None:
    lines = run_example("nearest_neighbours.py").splitlines()
    cosines = [float(line.split()[0]) for line in lines[1:]]
    assert len(cosines) == 10
    assert cosines == sorted(cosines, reverse=True)
    assert sum(line.split()[1] == "reads" for line in lines[1:]) >= 1


def test_sklearn_pipeline() -> None:
    scores = dict(re.findall(r"^(\S+): (\d+)%", run_example("sklearn_pipeline.py"), re.MULTILINE))
    assert int(scores["english-small"]) >= int(scores["TF-IDF"])
    assert int(scores["english-small"]) >= 66


def test_continue_training(tmp_path: Path) -> None:
    output = run_example("continue_training.py", "--work", str(tmp_path))
    before, after = (float(x) for x in re.findall(r"steps?: ([\d.]+)", output))
    assert after < 0.8 * before


def test_resume_after_kill(tmp_path: Path) -> None:
    output = run_example("resume_after_kill.py", "--work", str(tmp_path))
    assert "60 losses, identical to those of the unbroken run: True" in output


def test_notebook() -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "examples" / "tour.ipynb", as_version=4)
    nbformat.validate(notebook)
    client = nbclient.NotebookClient(
        notebook, timeout=TIMEOUT_SECONDS, resources={"metadata": {"path": str(ROOT)}}
    )
    client.execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert all(outputs)
