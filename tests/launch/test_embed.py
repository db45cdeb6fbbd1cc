"""The embed command: its output, kills at random times, a full disk, and its memory use."""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bilm.embedding.embedder import Embedder
from bilm.embedding.output import Output
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import WhitespaceTokenizer
from tests.conftest import GOLDEN, ROOT, tiny_model_config

pytestmark = pytest.mark.launch
LINES = ["The bank floods .", "", "Hello !", "  ", "caf\u00e9 \u2028 x", "one"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "model"
    torch.manual_seed(0)
    bilm = BiLm(tiny_model_config(), None)
    PretrainedBiLm(bilm, None, WhitespaceTokenizer()).save_pretrained(directory)
    return directory


def command(*arguments: object) -> list[str]:
    return [sys.executable, str(ROOT / "launch" / "embed.py"), *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def run(*arguments: object, code: int = 0, **settings: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment(), **settings
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


def datasets(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: dataset[()] for name, dataset in file.items() if name != "sentence_to_index"}


def test_output_has_the_published_format(model: Path, tmp_path: Path) -> None:
    text, output = tmp_path / "text.txt.gz", tmp_path / "out.hdf5"
    text.write_bytes(gzip.compress("\n".join(LINES).encode()))  # no newline at the end
    done = run("--model", model, "--input", text, "--output", output, "--progress")
    assert "words/s" in done.stderr
    found = datasets(output)
    expected = Embedder.from_pretrained(model).embed([line.split() for line in LINES])
    assert set(found) == {str(i) for i in range(len(LINES))}
    for i, array in enumerate(expected):
        assert found[str(i)].shape == (3, len(LINES[i].split()), 12)
        assert found[str(i)].dtype == np.float32
        np.testing.assert_allclose(found[str(i)], array, atol=1e-6)
    size = f"{output.stat().st_size:,} bytes"
    summary = f"wrote {output}: 6 sentences, 9 words, arrays (3, words, 12) of float32, {size}"
    assert done.stdout.strip() == summary
    with h5py.File(output) as file:
        tokens = [file[str(i)].attrs["tokens"].split() for i in range(len(LINES))]
        assert tokens == [line.split() for line in LINES]
        index = json.loads(file["sentence_to_index"][0])
    assert index == {"The bank floods .": "0", "": "3", "Hello !": "2", LINES[4]: "4", "one": "5"}
    done = run("--model", model, "--input", text, "--output", output, code=2)
    assert "already exists" in done.stderr


def test_reads_columns_and_encodings(model: Path, tmp_path: Path) -> None:
    expected = Embedder.from_pretrained(model).embed([["caf\u00e9", "au", "lait"], ["one"]])
    files = {
        "a.csv": (
            "id;text\n1;caf\u00e9 au lait\n2;one\n".encode("latin-1"),
            ["--encoding", "latin1"],
        ),
        "a.json": (b'[{"body": "caf\\u00e9 au lait"}, {"body": "one"}]', []),
        "sentences": ("caf\u00e9 au lait\none\n".encode("utf-16"), []),
    }
    for number, (name, (data, flags)) in enumerate(files.items()):
        text, output = tmp_path / name, tmp_path / f"{number}.hdf5"
        text.write_bytes(data)
        fields = ["--field", "text", "--field", "body"]
        run("--model", model, "--input", text, "--output", output, *fields, *flags)
        found = datasets(output)
        assert len(found) == 2
        for i, array in enumerate(expected):
            np.testing.assert_allclose(found[str(i)], array, atol=1e-6)


def test_accepts_published_files_and_every_option(tmp_path: Path) -> None:
    text, output = GOLDEN / "sentences.txt", tmp_path / "out.hdf5"
    options, weights = GOLDEN / "options.json", GOLDEN / "weights.hdf5"
    arguments = ["--options", options, "--weights", weights, "--input", text, "--output", output]
    done = run(*arguments, code=2)
    assert "--tokenizer whitespace" in done.stderr
    arguments += ["--tokenizer", "whitespace", "--dtype", "float16", "--layers", "mix:0.2,0.3,0.5"]
    arguments += ["--pool", "mean_max", "--compression", "gzip", "--state", "warm"]
    run(*arguments, "--batch-words", "50")
    embedder = Embedder.from_published(options, weights)
    sentences = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    expected = embedder.embed(
        sentences, "warm", output=Output((0.2, 0.3, 0.5), "mean_max", "float16")
    )
    found = datasets(output)
    for i, array in enumerate(expected):
        assert found[str(i)].shape == (64,)
        assert found[str(i)].dtype == np.float16
        np.testing.assert_allclose(found[str(i)], array, atol=2e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layers", "mix:1,x"], "a mix must have one number per layer"),
        (["--layers", "mix:1,2"], "2 weights; this model has 3 layers"),
        (["--layers", "both"], "layers is 'both'"),
        (["--batch-words", "0"], "--batch-words is 0"),
        (["--options", "options.json"], "either --model, or --options and --weights"),
        (["--input", "/nowhere.txt"], "/nowhere.txt does not exist"),
        (["--format", "csv", "--field", "text"], "has no column 'text' in its header ['a line']"),
        (["--encoding", "utf-99"], "'utf-99' is not a known encoding"),
        (["--field", "a", "--field", "1"], "several fields must be names"),
    ],
)
def test_rejects_invalid_arguments(
    model: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    text, output = tmp_path / "text.txt", tmp_path / "out.hdf5"
    text.write_text("a line\n")
    places = ("--model", model, "--input", text, "--output", output)
    assert message in run(*places, *arguments, code=2).stderr
    assert sorted(tmp_path.iterdir()) == [text]


def test_rejects_text_that_is_not_utf_8(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"fine\nca\xff\n")
    done = run("--model", model, "--input", text, "--output", tmp_path / "out.hdf5", code=2)
    assert "line 2 is not UTF-8: byte 3" in done.stderr


@pytest.fixture(scope="module")
def long_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a text of about 30 parts with 1,300 lines each."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    rng = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(40_000):
            file.write(" ".join(f"w{rng.randrange(5000)}" for _ in range(rng.randrange(45))) + "\n")
    return path


@pytest.mark.slow
def test_resumes_after_kill_9_at_any_time(model: Path, long_text: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(long_text.read_text().splitlines(keepends=True)[:16_000]))
    arguments = ("--model", model, "--input", text, "--pool", "mean")
    run(*arguments, "--output", tmp_path / "unbroken.hdf5")
    output = tmp_path / "out.hdf5"
    partial = tmp_path / "out.hdf5.partial"
    rng = random.Random(7)
    kills = 0
    while not output.exists():
        already = len(list(partial.glob("part-*")))
        process = subprocess.Popen(
            command(*arguments, "--output", output),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # Kill the process two parts later, at a random time within the next part.
        while process.poll() is None and len(list(partial.glob("part-*"))) < already + 2:
            time.sleep(0.005)
        time.sleep(rng.random() * 0.4)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        if kills == 8:  # let the last one finish
            done = run(*arguments, "--output", output)
            assert "resuming at line" in done.stderr
    assert kills >= 3
    expected, found = datasets(tmp_path / "unbroken.hdf5"), datasets(output)
    assert len(expected) == 16_000
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=1e-6)
    if partial.exists():  # the last process was killed after it had written the output
        subprocess.run(command(*arguments, "--output", output), env=environment(), check=False)
    assert not partial.exists()


def test_does_not_resume_with_changed_text(model: Path, tmp_path: Path) -> None:
    """Simulate a full disk with a limit on file sizes."""
    text, output = tmp_path / "text.txt", tmp_path / "out.hdf5"
    text.write_text("some words in a line\n" * 300)
    places = ("--model", model, "--input", text, "--output", output)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    done = run(*places, code=2, preexec_fn=limit)
    assert "no space left" in done.stderr
    assert "run the same command again" in done.stderr
    text.write_text("other words in a line\n" * 300)
    done = run(*places, code=2)
    assert "unfinished output of a run with different settings" in done.stderr
    assert "input: " in done.stderr
    text.write_text("some words in a line\n" * 300)
    run(*places)
    assert len(datasets(output)) == 300


def test_resumes_after_full_disk_while_joining_parts(model: Path, tmp_path: Path) -> None:
    text, output = tmp_path / "text.txt", tmp_path / "out.hdf5"
    text.write_text("one\n" * 3000)
    places = ("--model", model, "--input", text, "--output", output, "--pool", "mean")

    def limit() -> None:  # more than the part (0.5 MB), less than the file (2 MB)
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000))

    done = run(*places, code=2, preexec_fn=limit)
    assert "no space left" in done.stderr
    assert not output.exists()
    run(*places)
    assert len(datasets(output)) == 3000


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(model: Path, long_text: Path, tmp_path: Path) -> None:
    peaks = []
    lines = long_text.read_text().splitlines(keepends=True)
    for count in (10_000, 40_000):
        text = tmp_path / f"{count}.txt"
        text.write_text("".join(lines[:count]))
        code = (
            "import resource, subprocess, sys\n"
            "subprocess.run(sys.argv[1:], check=True)\n"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
        )
        arguments = ("--model", model, "--input", text, "--output", tmp_path / f"{count}.hdf5")
        done = subprocess.run(
            [sys.executable, "-c", code, *command(*arguments)],
            capture_output=True,
            text=True,
            check=True,
            env=environment(),
        )
        peaks.append(int(done.stdout.split()[-1]) * 1024)
    # The arrays take 130 MB for the longer text and a quarter of that for the shorter one.
    assert peaks[1] - peaks[0] < 30e6, peaks


def test_help_does_not_import_torch() -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = ['embed.py', '--help']\n"
        "try: runpy.run_path('launch/embed.py', run_name='__main__')\n"
        "except SystemExit as e: assert e.code == 0\n"
        "assert 'torch' not in sys.modules and 'h5py' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)
