"""Measure the speed, memory and serial share of building a corpus, once and from repeated text.

    python benchmarks/build_corpus.py [--text FILE] [--workers N] [--tokenizer NAME] [--lines KIND]

Runs `data_tools.build_corpus` in a separate process, and samples the memory of that process and its
workers. Prints one JSON line per build, and one with the ratio of the peaks: memory must grow
with the number of word types, not with the length of the text. `parent_share` is the processor
time of the parent process as a share of that of its workers. Without --text, 10 million words of
Zipf-like text are generated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

REPEATS = (1, 4)
SAMPLE_SECONDS = 0.02


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--text", type=Path, help="plain text, with one sentence or document per line"
    )
    parser.add_argument(
        "--words", type=int, default=10_000_000, help="words to generate without --text"
    )
    parser.add_argument(
        "--types", type=int, default=300_000, help="word types to generate without --text"
    )
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument(
        "--tokenizer", default="whitespace", help="tokenizer of the build (default: whitespace)"
    )
    parser.add_argument(
        "--lines", default="sentences", help="sentences or documents (default: sentences)"
    )
    args = parser.parse_args()
    flags = ["--workers", str(args.workers), "--tokenizer", args.tokenizer, "--lines", args.lines]
    peaks = []
    with tempfile.TemporaryDirectory(prefix="bilm-benchmark-") as name:
        directory = Path(name)
        text = args.text
        if text is None:
            text = directory / "generated.txt"
            generate(text, args.words, args.types)
        for repeats in REPEATS:
            result = measure(text, repeats, directory, flags)
            peaks.append(result["peak_mib"])
            print(json.dumps(result), flush=True)
    print(json.dumps({"peak_ratio": round(peaks[-1] / peaks[0], 3)}))


def generate(path: Path, num_words: int, num_types: int) -> None:
    """Write sentences of 5 to 45 words, drawn with a probability of about 1 / rank."""
    random = np.random.default_rng(0)
    with open(path, "w", encoding="utf-8") as file:
        while num_words > 0:
            lengths = random.integers(5, 46, size=min(40_000, num_words // 25 + 1))
            ranks = np.exp(random.random(int(lengths.sum())) * np.log(num_types)).astype(int)
            words = [f"{rank:x}" for rank in ranks.tolist()]
            ends = np.cumsum(lengths).tolist()
            for start, end in zip([0, *ends], ends, strict=False):
                file.write(" ".join(words[start:end]) + "\n")
            num_words -= len(words)


def measure(text: Path, repeats: int, directory: Path, flags: list[str]) -> dict[str, object]:
    """Build a corpus from `text`, repeated `repeats` times, and return the measurements."""
    repeated, output = directory / "repeated.txt", directory / "corpus"
    with open(repeated, "wb") as target:
        for _ in range(repeats):
            with open(text, "rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
    command = [sys.executable, "-m", "data_tools.build_corpus", "--input", str(repeated)]
    command += ["--output", str(output), *flags]
    start = time.perf_counter()
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak, parent, children = 0, 0.0, dict[int, float]()
    while process.poll() is None:
        peak = max(peak, resident_bytes(process))
        with contextlib.suppress(psutil.Error):  # a process has just ended
            parent = cpu_seconds(process)
            for child in process.children(recursive=True):
                children[child.pid] = cpu_seconds(child)
        time.sleep(SAMPLE_SECONDS)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"the build failed with exit code {process.returncode}")
    manifest = json.loads((output / "corpus.json").read_text(encoding="utf-8"))
    words = sum(split["words"] for split in manifest["splits"].values())
    shutil.rmtree(output)
    return {
        "repeats": repeats,
        "words": words,
        "types": manifest["num_types"],
        "seconds": round(seconds, 2),
        "words_per_second": round(words / seconds),
        "peak_mib": round(peak / 2**20),
        "worker_cpu_seconds": round(sum(children.values()), 1),
        "parent_cpu_seconds": round(parent, 2),
        "parent_share": round(parent / max(sum(children.values()), 1e-9), 4),
    }


def cpu_seconds(process: psutil.Process) -> float:
    """Return the processor time of a process, without its children."""
    times = process.cpu_times()
    return float(times.user + times.system)


def resident_bytes(process: psutil.Process) -> int:
    """Return the current resident memory of a process and its children."""
    total = 0
    for member in [process, *process.children(recursive=True)]:
        try:
            total += member.memory_info().rss
        except psutil.Error:  # the process has just ended
            continue
    return total


if __name__ == "__main__":
    main()
