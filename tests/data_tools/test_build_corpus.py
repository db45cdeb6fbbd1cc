"""The build command: its summary, overwriting, full disks, kills and dead workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import psutil
import pytest

from bilm.corpus.reader import Corpus
from data_tools import build_corpus
from tests.data_tools.corpus_building import WHITESPACE, build, reject, write_lines
from tests.data_tools.corpus_reading import REPOSITORY, digests, run

GOOD = "a b c\nd e f\n"


def test_prints_a_summary(tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text.txt")
    result = run("build_corpus", "--input", text, "--output", tmp_path / "c", *WHITESPACE)
    assert result.returncode == 0, result.stderr
    for part in ("words/s", "types", "<UNK>", "train:", "heldout:", "peak memory"):
        assert part in result.stdout
    names = {path.name for path in (tmp_path / "c").iterdir()}
    assert names == {"corpus.json", "heldout-00000.tar", "lexicon.bin", "lexicon.counts.npy",
                     "lexicon.offsets.npy", "train-00000.tar", "vocab.txt"}  # fmt: skip
    with tarfile.open(tmp_path / "c/train-00000.tar") as tar:
        assert all(member.isreg() and member.mtime == 0 for member in tar)
    assert str(tmp_path) not in (tmp_path / "c/corpus.json").read_text()


def test_user_error_exits_with_2_without_traceback(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ok\n\xff\n")
    for module in ("build_corpus", "build_vocab"):
        result = run(
            module, "--input", tmp_path / "a.txt", "--output", tmp_path / "c", "--workers", 2
        )
        assert result.returncode == 2
        assert result.stderr.startswith("error: ")
        assert "line 2 is not UTF-8" in result.stderr
        assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


class TestOverwrite:
    def test_rejects_or_replaces_an_existing_output(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text(GOOD)
        args = ["--input", str(tmp_path / "a.txt"), "--output", str(tmp_path / "corpus")]
        args += ["--heldout", "0", "--tokenizer", "whitespace", "--min-count", "1"]
        build_corpus.main([*args, "--workers", "1"])
        reject(tmp_path, "a.txt", message="already exists")
        (tmp_path / "bad.txt").write_bytes(b"\xff")
        reject(tmp_path, "bad.txt", "--overwrite", message="not UTF-8")  # keeps the old corpus
        (tmp_path / "a.txt").write_text("new words\n")
        build_corpus.main([*args, "--workers", "1", "--overwrite"])
        assert Corpus.open(tmp_path / "corpus").vocabulary.words[3:] == ("new", "words")

    def test_replaces_only_a_corpus(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text(GOOD)
        (tmp_path / "corpus").mkdir()
        (tmp_path / "corpus/thesis.txt").write_text("years of work")
        reject(tmp_path, "a.txt", "--overwrite", message="is not a corpus")

    def test_rejects_an_output_that_contains_the_input(self, tmp_path: Path) -> None:
        (tmp_path / "corpus").mkdir()
        (tmp_path / "corpus/a.txt").write_text(GOOD)
        reject(tmp_path, "corpus/a.txt", "--overwrite", message="contains the input")


@pytest.mark.parametrize("limit", [2_000, 60_000, 150_000])
def test_full_disk_keeps_the_old_corpus(tmp_path: Path, limit: int) -> None:
    (tmp_path / "a.txt").write_text("".join(f"w{i % 5000} x y z\n" for i in range(20_000)))
    args = ["--input", str(tmp_path / "a.txt"), "--output", str(tmp_path / "corpus")]
    args += ["--heldout", "0", "--tokenizer", "whitespace", "--workers", "1", "--overwrite"]
    build_corpus.main(args)
    before = digests(tmp_path)
    # A limit on the size of files makes writes fail as a full disk does.
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2);"
        "from bilm.errors import run_command; from data_tools.build_corpus import main;"
        "run_command(lambda: main(sys.argv[2:]))"
    )
    command = [sys.executable, "-c", program, str(limit), *args]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2, result.stderr
    assert "no space left while writing" in result.stderr
    assert "Traceback" not in result.stderr
    assert digests(tmp_path) == before


def start_build(tmp_path: Path, *flags: str) -> psutil.Popen:
    """Start a build with two workers, and wait until both encode a part."""
    text = tmp_path / "a.txt"
    text.write_text("It's a raw text, isn't it? Mr. Smith's (big) dog.\n" * 170_000)
    args = ["--input", str(text), "--output", str(tmp_path / "corpus"), "--workers", "2"]
    command = [sys.executable, "-m", "data_tools.build_corpus", *args, *flags]
    building = psutil.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob(".corpus.build/parts/.*/train"))) < 2:
        assert building.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return building


def test_killed_build_leaves_no_output_and_no_process(tmp_path: Path) -> None:
    building = start_build(tmp_path, "--heldout", "0")
    workers = building.children(recursive=True)
    assert len(workers) >= 2
    os.kill(building.pid, signal.SIGKILL)
    building.communicate(timeout=10)
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []
    assert not (tmp_path / "corpus").exists()
    (tmp_path / "a.txt").write_text("It's raw.\n" * 10)
    Corpus.open(build(tmp_path / "a.txt", tmp_path / "corpus", "--heldout", 0)).verify()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "corpus"]


def test_repeats_the_part_of_a_dead_worker(tmp_path: Path) -> None:
    building = start_build(tmp_path, "--heldout", "0")
    max(building.children(), key=lambda child: child.memory_info().rss).kill()
    _, errors = building.communicate(timeout=60)
    assert building.returncode == 0, errors
    args = ["--tokenizer", "moses", "--min-count", 3, "--heldout", 0]
    expected = build(tmp_path / "a.txt", tmp_path / "expected", *args)
    assert digests(tmp_path / "corpus") == digests(expected)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.txt", "corpus", "expected"]
