"""Row 7: shards that are corrupt, truncated, missing, swapped, or changed during a run."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bilm.corpus.reader import Corpus
from bilm.errors import CorpusError
from tests.chaos.jobs import SETTINGS, kill_all, last_step, wait_until
from tests.chaos.results import Row, row
from tests.conftest import ROOT
from tests.launch.launching import build_demo_corpus, launch, start
from tests.launch.test_verification import settle

pytestmark = [pytest.mark.slow, pytest.mark.launch]
TITLE = "shards corrupt, truncated, missing, swapped, or changed during a run"


def test_damaged_corpora_short(tmp_path: Path) -> None:
    with row(7, TITLE, seed=11) as results:
        _every_damage(results, _shards(tmp_path), tmp_path, random.Random(11), flips=10)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_damaged_corpora(tmp_path: Path) -> None:
    with row(7, TITLE, seed=12) as results:
        corpus, rng = _shards(tmp_path), random.Random(12)
        _every_damage(results, corpus, tmp_path, rng, flips=150)
        for name, damage in {**DAMAGES, "flipped": _flip}.items():
            with results.case(f"a run rejects it: {name}"):
                bad = tmp_path / f"bad-{name}"
                shutil.copytree(corpus, bad)
                damage(bad, rng)
                done = launch(bad, tmp_path / f"x-{name}" / "run", *SETTINGS, ranks=2, code=2)
                assert "train-0000" in done.stderr
                assert "Traceback" not in done.stderr
        for name, damage in {**DAMAGES, "flipped": _flip}.items():
            with results.case(f"changed during a run: {name}"):
                _change_during_run(corpus, tmp_path / f"during-{name}", damage, rng)
        between = {**DAMAGES, "flipped": _flip, "flipped-with-old-time": _hide}
        for name, damage in between.items():
            with results.case(f"changed between two starts: {name}"):
                _change_between_starts(corpus, tmp_path / f"twice-{name}", damage, rng)
        with results.case("replaced by another corpus between two starts"):
            replaced, output = tmp_path / "between", tmp_path / "between-run" / "run"
            shutil.copytree(corpus, replaced)
            launch(replaced, output, *SETTINGS, "train.max_steps=4", ranks=2)
            shutil.rmtree(replaced)
            shutil.copytree(build_demo_corpus(tmp_path / "other", sentences=500), replaced)
            done = launch(replaced, output, *SETTINGS, ranks=2, code=2)
            assert "data.corpus" in done.stderr
        results.worst = "0 undetected; every error names the file"


def _shards(directory: Path) -> Path:
    """Build a corpus of several shards."""
    build_demo_corpus(directory, sentences=6000)
    command = [
        sys.executable,
        "-m",
        "data_tools.build_corpus",
        f"--input={directory / 'text' / 'train.txt'}",
        "--heldout=0.05",
        "--tokenizer=whitespace",
        "--workers=1",
        "--min-count=1",
        "--shard-words=8192",
        f"--output={directory / 'shards'}",
    ]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    return directory / "shards"


def _flip(corpus: Path, rng: random.Random) -> str:
    file = rng.choice(sorted(corpus.glob("train-*.tar")))
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return file.name


def _truncate(corpus: Path, rng: random.Random) -> str:
    file = rng.choice(sorted(corpus.glob("train-*.tar")))
    with file.open("r+b") as shard:
        shard.truncate(rng.randrange(file.stat().st_size))
    return file.name


def _remove(corpus: Path, rng: random.Random) -> str:
    file = rng.choice(sorted(corpus.glob("train-*.tar")))
    file.unlink()
    return file.name


def _swap(corpus: Path, _: random.Random) -> str:
    first, second, *_ = sorted(corpus.glob("train-*.tar"))
    aside = corpus / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    return "train-0000"


def _hide(corpus: Path, rng: random.Random) -> str:
    """Flip a bit and restore the modification time."""
    times = {path: path.stat().st_mtime_ns for path in corpus.glob("train-*.tar")}
    name = _flip(corpus, rng)
    os.utime(corpus / name, ns=(times[corpus / name],) * 2)
    return name


Damage = Callable[[Path, random.Random], str]
DAMAGES: dict[str, Damage] = {"truncated": _truncate, "missing": _remove, "swapped": _swap}


def _every_damage(
    results: Row, corpus: Path, tmp_path: Path, rng: random.Random, flips: int
) -> None:
    """Check that reading the whole corpus detects each kind of damage."""
    files = sorted(p.name for p in corpus.iterdir())
    copy = tmp_path / "copy"
    cases: list[Damage] = [_flip] * flips + [_truncate] * (flips // 2) + [_remove] * 3 + [_swap]
    for i, damage in enumerate(cases):
        with results.case(f"{damage.__name__.strip('_')} {i}"):
            shutil.copytree(corpus, copy)
            try:
                name = damage(copy, rng)
                with pytest.raises(CorpusError, match=name):
                    Corpus.open(copy).verify()
            finally:
                shutil.rmtree(copy)
    for name in files:  # a flipped bit in each of the files
        with results.case(f"flipped bit in {name}"):
            shutil.copytree(corpus, copy)
            try:
                data = bytearray((copy / name).read_bytes())
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                (copy / name).write_bytes(data)
                with pytest.raises(CorpusError, match=name):
                    Corpus.open(copy).verify()
            finally:
                shutil.rmtree(copy)
    results.worst = "0 undetected"


def _change_during_run(corpus: Path, directory: Path, damage: Damage, rng: random.Random) -> None:
    """Check that a run stops after a change of its corpus."""
    copy, output = directory / "corpus", directory / "x" / "run"
    shutil.copytree(corpus, copy)
    rare = ("train.checkpoints.every_steps=50", "train.evaluation.every_steps=100000")
    process = start(copy, output, *SETTINGS, *rare, "train.max_steps=100000", ranks=2)
    try:
        wait_until(lambda: last_step(output) >= 5, process)
        name = damage(copy, rng)
        assert process.wait(timeout=120) != 0
    finally:
        kill_all(process)
    log = output.with_suffix(".log").read_text(encoding="utf-8")
    assert "error: the corpus has changed since it was opened" in log, log[-2000:]
    assert name in log


def _change_between_starts(
    corpus: Path, directory: Path, damage: Damage, rng: random.Random
) -> None:
    """Check that damage is detected although the first start has recorded every file."""
    copy, output = directory / "corpus", directory / "x" / "run"
    shutil.copytree(corpus, copy)
    settle(copy)
    launch(copy, output, *SETTINGS, "train.max_steps=2", ranks=2)
    assert Corpus.open(copy).files.is_verified("train-00000.tar")
    name = damage(copy, rng)
    done = launch(copy, output, *SETTINGS, ranks=2, code=2)
    assert name in done.stderr
