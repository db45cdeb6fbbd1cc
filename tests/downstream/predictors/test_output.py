from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bilm.errors import BilmError
from downstream.predict import main
from downstream.predictors.output import write_output
from tests.conftest import ROOT

LINKS: dict[str, Callable[[Path, Path], object]] = {
    "hard link": lambda path, link: os.link(path, link),
    "symbolic link": lambda path, link: link.symlink_to(path),
}


def predict(directory: Path, source: Path, output: Path, *more: str) -> None:
    """Call the command with a head that passes only the checks of the output."""
    (directory / "head").mkdir(exist_ok=True)
    (directory / "head" / "tagger.json").write_text("{}")
    files = ["--input", str(source), "--output", str(output)]
    main(["--head", str(directory / "head"), *files, *more])


@pytest.mark.parametrize("more", [[], ["--overwrite"]])
@pytest.mark.parametrize("link", [None, *LINKS])
def test_rejects_an_output_that_is_the_input(
    tmp_path: Path, link: str | None, more: list[str]
) -> None:
    source = tmp_path / "in.jsonl"
    output = source if link is None else tmp_path / "out.jsonl"
    source.write_text('{"text": "a"}\n')
    if link is not None:
        LINKS[link](source, output)
    with pytest.raises(BilmError, match=f"--output is {output}, which is the input"):
        predict(tmp_path, source, output, *more)
    assert source.read_text() == '{"text": "a"}\n'


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], r"out\.jsonl already exists; choose another path, or use --overwrite"),
        (["--overwrite"], r"tagger\.json"),  # the next check
    ],
)
def test_replaces_an_existing_output_only_on_request(
    tmp_path: Path, more: list[str], message: str
) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("a\n")
    output.write_text("old")
    with pytest.raises(BilmError, match=message):
        predict(tmp_path, source, output, *more)
    assert output.read_text() == "old"


def test_writes_the_bytes_of_the_text(tmp_path: Path) -> None:
    write_output(tmp_path / "out.csv", "é\r\n")
    assert (tmp_path / "out.csv").read_bytes() == "é\r\n".encode()


WRITE = "from downstream.predictors.output import *; write_output(STANDARD, 'é\\U0001f600')"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_standard_output_is_utf8_regardless_of_the_locale(encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", WRITE], capture_output=True, env=environment, cwd=ROOT
    )
    assert done.stdout == "é\U0001f600".encode(), done.stderr


def test_reports_a_full_disk_on_standard_output() -> None:
    code = f"{WRITE.split(';')[0]}; from bilm.errors import run_command\n"
    code += "run_command(lambda: write_output(STANDARD, 'text'))"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        "error: no space left while writing standard output: 4 bytes needed; the output is not "
        "complete\n"
    )
