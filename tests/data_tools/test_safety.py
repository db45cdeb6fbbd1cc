"""Every bad input is its own clear error with exit code 2, and nothing is left behind."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import zstandard

from bilm.corpus.reader import Corpus
from bilm.errors import BilmError
from data_tools import build_corpus, build_shards
from tests.data_tools.corpus_reading import REPOSITORY, digests, run

GOOD = "a b c\nd e f\n"
# Random bytes do not compress, so that a cut falls inside the stream.
NOISE = "".join(f"{i * 7919 % 10007} " + "\n" * (i % 11 == 0) for i in range(20_000)).encode()


def refuse(tmp_path: Path, pattern: str, *flags: object, message: str) -> None:
    """Building from `pattern` fails with `message` and leaves only what was there."""
    before = digests(tmp_path)
    output = tmp_path / "corpus"
    args = ["--input", tmp_path / pattern, "--output", output, "--heldout", 0, "--workers", 1]
    with pytest.raises(BilmError, match=message):
        build_corpus.main([str(arg) for arg in [*args, "--tokenizer", "whitespace", *flags]])
    assert digests(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "data", "flags", "message"),
    [
        ("a.txt", b"ok\nb \xff\n", [], r"a\.txt, line 2 is not UTF-8: byte 3 of the line is 0xff"),
        ("a.txt", b"ok\nok <S> x\n", [], r"a\.txt, line 2 holds the word <S>.*remove it"),
        ("a.txt", b"ok\n\nx </S>\n", [], r"a\.txt, line 3 holds the word </S>"),
        ("a.txt", b"ok\nno\0pe\n", [], r"a\.txt, line 2 holds a NUL byte"),
        ("a.txt", b"", [], r"a\.txt is empty"),
        ("a.txt.gz", gzip.compress(b"", mtime=0), [], r"a\.txt\.gz is empty"),
        ("a.txt", b"\n  \n\t\n", [], r"no words at all"),
        ("a.pdf", b"x\n", [], r"unknown extension '\.pdf'.*--format"),
        ("a.txt.gz", gzip.compress(NOISE, mtime=0)[:-9], [], r"a\.txt\.gz is cut short"),
        ("a.txt.gz", b"not gzip\n", [], r"cannot read .*a\.txt\.gz"),
        (
            "a.txt.gz",
            gzip.compress(NOISE, mtime=0)[:-6] + b"xxxxxx",
            [],
            r"cannot read .*a\.txt\.gz",
        ),
        ("a.txt.zst", zstandard.compress(NOISE)[:-9], [], r"a\.txt\.zst is cut short"),
        ("a.txt.zst", b"not zstd\n", [], r"cannot read .*a\.txt\.zst"),
        ("a.txt.bz2", b"not bzip\n", [], r"cannot read .*a\.txt\.bz2"),
        ("a.txt.xz", b"not lzma\n", [], r"cannot read .*a\.txt\.xz"),
        ("a.jsonl", b'{"text": "x"}\n{"txt": "x"}\n', [], r"a\.jsonl, line 2 has no field 'text'"),
        ("a.jsonl", b'{"text": "x"}\n{"text"\n', [], r"a\.jsonl, line 2 is not JSON"),
        ("a.jsonl", b"[1]\n", [], r"a\.jsonl, line 1 has no field"),
        ("a.jsonl", b'{"text": 3}\n', [], r"a\.jsonl, line 1: the field 'text' is 3"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', [], r"line 1: .*half a surrogate pair"),
        ("a.jsonl", b"[" * 100_000, [], r"a\.jsonl, line 1 is not JSON"),
        ("a.csv", b"id,body\n1,x\n", [], r"no column 'text' in its header \['id', 'body'\]"),
        ("a.csv", b"id,text\n1,x\n2\n", [], r"a\.csv, line 3 has 1 columns; column 2 is wanted"),
        ("a.csv", b"1,x\n", ["--field", "0"], r"numbered from 1"),
        ("a.csv", b"id,text\n1,\xff\n", [], r"a\.csv, line 2 is not UTF-8"),
        ("a.txt", GOOD.encode(), ["--heldout", "1.5"], r"--heldout 1\.5: a share must be"),
        ("a.txt", GOOD.encode(), ["--heldout", "nan"], r"--heldout nan: a share must be"),
        ("a.txt", GOOD.encode(), ["--heldout", "1e-9"], r"no sentence falls into.*'heldout'"),
        ("a.txt", GOOD.encode(), ["--heldout", "0.999999"], r"no sentence falls into.*'train'"),
        ("a.txt", GOOD.encode(), ["--heldout", "nowhere.txt"], r"nowhere\.txt: there is no such"),
        ("a.txt", GOOD.encode(), ["--workers", "0"], r"--workers 0: must be at least 1"),
        ("a.txt", GOOD.encode(), ["--max-vocab", "3"], r"--max-vocab 3: must be at least 4"),
        (
            "a.txt",
            GOOD.encode(),
            ["--min-count", "9"],
            r"no word occurs 9 times.*lower --min-count",
        ),
        ("a.txt", GOOD.encode(), ["--seed", "-1"], r"--seed -1"),
        ("a.txt", GOOD.encode(), ["--shuffle", "documents"], r"needs --lines documents"),
        (
            "a.txt",
            GOOD.encode(),
            ["--sentencepiece-model", "m"],
            r"needs --tokenizer sentencepiece",
        ),
    ],
)
def test_bad_input(tmp_path: Path, name: str, data: bytes, flags: list[str], message: str) -> None:
    (tmp_path / name).write_bytes(data)
    refuse(tmp_path, name, "--min-count", 1, *flags, message=message)


def test_missing_files_directories_and_empty_patterns(tmp_path: Path) -> None:
    (tmp_path / "folder.txt").mkdir()
    refuse(tmp_path, "nothing.txt", message=r"nothing\.txt: there is no such file")
    refuse(tmp_path, "*.gz", message=r"matches no file")
    refuse(tmp_path, "folder.txt", message=r"is a directory")
    refuse(tmp_path, "*.txt", message=r"is a directory")


def test_one_empty_file_among_others_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(GOOD)
    (tmp_path / "b.txt").write_text("")
    refuse(tmp_path, "*.txt", message=r"b\.txt is empty")


def test_the_line_is_right_in_a_later_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_tools.reading.chunks.CHUNK_BYTES", 1000)
    (tmp_path / "a.txt").write_bytes(b"some words\n" * 5000 + b"<S>\n" + b"more\n" * 500)
    for workers in (1, 2):
        refuse(tmp_path, "a.txt", "--workers", workers, message=r"a\.txt, line 5001 holds the word")


def test_a_line_of_100_megabytes_is_refused_without_reading_it(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.txt.gz", "wb", compresslevel=1) as file:
        file.write(b"fine\n")
        for _ in range(100):
            file.write(b"x " * (1 << 19))
    flags = ["--heldout", "0", "--tokenizer", "whitespace", "--workers", "1"]
    started = psutil.Popen(
        [sys.executable, "-m", "data_tools.build_corpus", "--input", tmp_path / "a.txt.gz",
         "--output", tmp_path / "c", *flags],
        cwd=REPOSITORY, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    peak = 0
    while started.poll() is None:
        try:
            peak = max(peak, started.memory_info().rss)
        except psutil.Error:
            break
        time.sleep(0.005)
    assert started.wait(timeout=60) == 2
    assert "line 2 has more than 16,777,216 bytes" in started.stderr.read()
    assert peak < 160 << 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<S>\n<UNK>\na\n", r"must be <S> </S> <UNK>"),
        ("<S>\n</S>\n<UNK>\na\nb\na\n", r"'a' occurs twice .* lines 4 and 6"),
        ("<S>\n</S>\n<UNK>\na b\n", r"line 4 .* one word"),
        (None, r"cannot read the vocabulary"),
    ],
)
def test_bad_vocabularies(tmp_path: Path, content: str | None, message: str) -> None:
    (tmp_path / "a.txt").write_text(GOOD)
    if content is not None:
        (tmp_path / "v.txt").write_text(content)
    args = ["--vocab", "v.txt", "--input", "a.txt", "--output", "c"]
    args = [arg if arg.startswith("--") else str(tmp_path / arg) for arg in args]
    with pytest.raises(BilmError, match=message):
        build_shards.main([*args, "--heldout", "0", "--tokenizer", "whitespace"])
    assert not (tmp_path / "c").exists()


def test_a_user_error_has_no_traceback_and_exit_code_2(tmp_path: Path) -> None:
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
    def test_an_existing_output_is_refused_or_replaced_whole(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text(GOOD)
        args = ["--input", str(tmp_path / "a.txt"), "--output", str(tmp_path / "corpus")]
        args += ["--heldout", "0", "--tokenizer", "whitespace", "--min-count", "1"]
        build_corpus.main([*args, "--workers", "1"])
        refuse(tmp_path, "a.txt", message="exists already")
        (tmp_path / "bad.txt").write_bytes(b"\xff")
        refuse(tmp_path, "bad.txt", "--overwrite", message="not UTF-8")  # the old one stays
        (tmp_path / "a.txt").write_text("new words\n")
        build_corpus.main([*args, "--workers", "1", "--overwrite"])
        assert Corpus.open(tmp_path / "corpus").vocabulary.words[3:] == ("new", "words")

    def test_only_a_corpus_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text(GOOD)
        (tmp_path / "corpus").mkdir()
        (tmp_path / "corpus/thesis.txt").write_text("years of work")
        refuse(tmp_path, "a.txt", "--overwrite", message="is no corpus")

    def test_an_output_that_holds_the_input_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "corpus").mkdir()
        (tmp_path / "corpus/a.txt").write_text(GOOD)
        refuse(tmp_path, "corpus/a.txt", "--overwrite", message="holds the input")


@pytest.mark.parametrize("limit", [2_000, 60_000, 150_000])
def test_a_full_disk_is_a_clear_error_that_keeps_the_old_corpus(tmp_path: Path, limit: int) -> None:
    (tmp_path / "a.txt").write_text("".join(f"w{i % 5000} x y z\n" for i in range(20_000)))
    args = ["--input", str(tmp_path / "a.txt"), "--output", str(tmp_path / "corpus")]
    args += ["--heldout", "0", "--tokenizer", "whitespace", "--workers", "1", "--overwrite"]
    build_corpus.main(args)
    before = digests(tmp_path)
    # A limit on the size of files fails a write as a full disk does.
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


def test_a_killed_build_leaves_nothing_finished_and_no_process(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("It's a raw text, isn't it? Mr. Smith's (big) dog.\n" * 100_000)
    output = tmp_path / "corpus"
    args = ["--input", str(text), "--output", str(output), "--workers", "2", "--heldout", "0"]
    command = [sys.executable, "-m", "data_tools.build_corpus", *args]
    building = psutil.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    # Kill it while the spool grows: workers are in the middle of their chunks.
    while not any(p.stat().st_size for p in tmp_path.glob(".corpus.*/work/train")):
        assert building.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = building.children(recursive=True)
    assert len(workers) >= 2
    os.kill(building.pid, signal.SIGKILL)
    building.wait(timeout=10)
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []
    assert not output.exists()
    text.write_text("It's raw.\n" * 10)
    assert run("build_corpus", *args).returncode == 0
    Corpus.open(output).verify()


def test_a_dead_worker_is_a_clear_error(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("It's a raw text, isn't it? Mr. Smith's (big) dog.\n" * 100_000)
    args = ["--input", text, "--output", tmp_path / "corpus", "--workers", "2"]
    command = [sys.executable, "-m", "data_tools.build_corpus", *args]
    building = psutil.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not any(p.stat().st_size for p in tmp_path.glob(".corpus.*/work/train")):
        assert building.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    worker = max(building.children(), key=lambda child: child.memory_info().rss)
    worker.kill()
    _, errors = building.communicate(timeout=60)
    assert building.returncode == 2
    assert "a worker process died" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
