"""Builds that are killed, lose workers or are divided over processes give the stored bytes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import BilmError
from data_tools import build_corpus
from data_tools.building import encode
from tests.data_tools.building.stored_builds import (
    BUCKET_WORDS,
    BUILDS,
    RANGE_TYPES,
    arguments,
    build_digest,
    digest,
    write_inputs,
)
from tests.data_tools.corpus_reading import REPOSITORY

PART_BYTES = 20_000

# Runs a build, and kills its process at the given call of a function of the pipeline.
KILLED_BUILD = """
import os, signal, sys
from data_tools import build_corpus
from data_tools.building import first_pass, merging, pipeline, shuffle
from data_tools.reading import parts
parts.MIN_PART_BYTES, shuffle.BUCKET_WORDS, merging.RANGE_TYPES = map(int, sys.argv[3:6])
name, left = sys.argv[1], int(sys.argv[2])
module = first_pass if hasattr(first_pass, name) else pipeline
function = getattr(module, name)
def killed(*args, **options):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*args, **options)
setattr(module, name, killed)
build_corpus.main(sys.argv[6:])
"""


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("data_tools.building.shuffle.BUCKET_WORDS", BUCKET_WORDS)
    monkeypatch.setattr("data_tools.building.merging.RANGE_TYPES", RANGE_TYPES)
    monkeypatch.setattr("data_tools.reading.parts.MIN_PART_BYTES", PART_BYTES)
    write_inputs(tmp_path / "inputs")
    return tmp_path / "inputs"


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories of the parts that this process encodes."""
    directories = []
    original = encode._encode

    def record(task: encode.EncodeTask, *args: object) -> None:
        directories.append(task.directory)
        original(task, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(encode, "_encode", record)
    return directories


def kill_build(args: list[str], function: str, call: int) -> None:
    numbers = [str(call), str(PART_BYTES), str(BUCKET_WORDS), str(RANGE_TYPES)]
    command = [sys.executable, "-c", KILLED_BUILD, function, *numbers, *args, "--workers", "1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize(
    ("function", "call", "parts_left"),
    [("encode_part", 4, True), ("merge_range", 2, False), ("scatter_part", 2, False),
     ("fill_bucket", 3, False), ("write_shard", 2, False), ("write_manifest", 1, False)],
)  # fmt: skip
def test_resumes_a_killed_build(
    tmp_path: Path, inputs: Path, encoded: list[Path], function: str, call: int, parts_left: bool
) -> None:
    output = tmp_path / "corpus"
    kill_build(arguments(inputs, output, "moses"), function, call)
    done = {path for path in (tmp_path / ".corpus.build/parts").iterdir() if path.name[0] != "."}
    assert len(done) >= 3
    assert not output.exists()
    assert build_digest(inputs, output, "moses", "--workers", "1") == BUILDS["moses"][1]
    assert bool(encoded) == parts_left
    assert not done & set(encoded)
    assert not (tmp_path / ".corpus.build").exists()


def test_starts_again_if_the_options_have_changed(
    tmp_path: Path, inputs: Path, encoded: list[Path]
) -> None:
    output = tmp_path / "corpus"
    kill_build(arguments(inputs, output, "moses"), "write_shard", 2)
    assert build_digest(inputs, output, "in order", "--workers", "1") == BUILDS["in order"][1]
    assert encoded


class TestParts:
    def test_completes_the_parts_of_several_processes(
        self, tmp_path: Path, inputs: Path, encoded: list[Path]
    ) -> None:
        output = tmp_path / "corpus"
        for part in ("1/3", "3/3", "3/3"):  # one is repeated, and one is lost
            args = [*arguments(inputs, output, "moses"), "--part", part, "--workers", "1"]
            assert build_corpus.main(args) == 0
        done = set(encoded)
        assert len(done) == len(encoded) > 3
        assert not output.exists()
        encoded.clear()
        assert build_digest(inputs, output, "moses", "--workers", "1") == BUILDS["moses"][1]
        assert encoded
        assert not done & set(encoded)

    def test_rejects_parts_with_other_options(self, tmp_path: Path, inputs: Path) -> None:
        args = arguments(inputs, tmp_path / "corpus", "moses")
        build_corpus.main([*args, "--part", "1/2", "--workers", "1"])
        with pytest.raises(BilmError, match="belongs to a build with other inputs, options"):
            build_corpus.main([*args, "--part", "2/2", "--seed", "9"])

    def test_rejects_the_same_part_or_a_whole_build_at_the_same_time(
        self, tmp_path: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        args = [*arguments(inputs, tmp_path / "corpus", "moses"), "--workers", "1"]
        original, messages = encode._encode, []

        def build_meanwhile(*encode_args: Any) -> None:
            monkeypatch.setattr(encode, "_encode", original)
            for flags in (["--part", "1/2"], []):
                with pytest.raises(BilmError) as raised:
                    build_corpus.main([*args, *flags])
                messages.append(str(raised.value))
            build_corpus.main([*args, "--part", "2/2"])
            original(*encode_args)

        monkeypatch.setattr(encode, "_encode", build_meanwhile)
        build_corpus.main([*args, "--part", "1/2"])
        corpus = tmp_path / "corpus"
        assert messages == [
            f"another process is running --part 1/2 of {corpus}; wait for it, or end it",
            f"another process is building {corpus}; wait for it, or end it",
        ]
        assert build_digest(inputs, corpus, "moses", "--workers", "1") == BUILDS["moses"][1]

    @pytest.mark.parametrize("part", ["3", "a/2", "1/2/3", "-1/2", "1/"])
    def test_rejects_malformed_part(self, part: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            build_corpus.main(["--input", "a.txt", "--output", "b", f"--part={part}"])
        assert f"{part!r} is not of the form K/N, such as 3/16" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["--part", "3/2"], "--part is 3/2; the first number must be at least 1"),
            (["--part", "0/2"], "--part is 0/2; the first number must be at least 1"),
            (["--part", "1/2", "--scheduler", "tcp://x"], "exclude each other"),
            (["--part", "1/2", "--tokenizer", "sentencepiece"], "requires --sentencepiece-model"),
        ],
    )
    def test_rejects_invalid_flags(
        self, tmp_path: Path, inputs: Path, flags: list[str], message: str
    ) -> None:
        with pytest.raises(BilmError, match=message):
            build_corpus.main([*arguments(inputs, tmp_path / "corpus", "moses"), *flags])
        assert not (tmp_path / ".corpus.build").exists()


def test_keeps_the_parts_if_the_scheduler_does_not_answer(
    tmp_path: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="dask is not installed: pip install 'bilm[dask]'")
    monkeypatch.setattr("data_tools.building.workers.CONNECT_SECONDS", 0.5)
    args = arguments(inputs, tmp_path / "corpus", "moses")
    build_corpus.main([*args, "--part", "1/2", "--workers", "1"])
    parts = sorted((tmp_path / ".corpus.build/parts").iterdir())
    with pytest.raises(BilmError, match="cannot connect to --scheduler"):
        build_corpus.main([*args, "--scheduler", "tcp://127.0.0.1:1"])
    assert sorted((tmp_path / ".corpus.build/parts").iterdir()) == parts


def test_rejects_a_second_build_of_the_same_output(tmp_path: Path, inputs: Path) -> None:
    import fcntl

    (tmp_path / ".corpus.build").mkdir()
    with open(tmp_path / ".corpus.build/lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BilmError, match="another process is building"):
            build_digest(inputs, tmp_path / "corpus", "moses")
    assert build_digest(inputs, tmp_path / "corpus", "moses") == digest(tmp_path / "corpus")
