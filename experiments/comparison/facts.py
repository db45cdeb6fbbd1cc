"""Measure a system: embedding throughput, peak memory, number of weights, and size on disk."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from bilm.distributed.process import configure_process, num_cores, peak_memory_bytes
from bilm.errors import CheckpointError, run_command
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from experiments.comparison.features import open_features
from experiments.comparison.tasks import read_examples

WARMUP_SENTENCES = 200

MAX_SECONDS = 20.0

GROUP_SENTENCES = 500

NOT_COUNTED = ("text", "flair", "plan.json", "curve.jsonl", "tensorboard")


def main(argv: Sequence[str] | None = None) -> int:
    """Embed the validation sentences of CoNLL-2003, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison.facts")
    parser.add_argument("--system", type=Path, required=True, help="a system.json")
    parser.add_argument("--tasks", type=Path, required=True, help="output of .tasks")
    parser.add_argument("--output", type=Path, required=True, help="the file to write, in JSON")
    arguments = parser.parse_args(argv)
    configure_process()
    before = peak_memory_bytes()
    features = open_features(arguments.system)
    sentences = [e.words for e in read_examples(arguments.tasks, "ner", "validation")]
    features.words(sentences[:WARMUP_SENTENCES])
    start = time.monotonic()
    num_words = 0
    for i in range(0, len(sentences), GROUP_SENTENCES):
        num_words += sum(len(a[0]) for a in features.words(sentences[i : i + GROUP_SENTENCES]))
        if time.monotonic() - start > MAX_SECONDS:
            break
    seconds = time.monotonic() - start
    tree = {
        "num_layers": features.num_layers,
        "dim": features.dim,
        "parameters": int(features.num_parameters),
        "embedding_words": num_words,
        "embedding_words_per_second": num_words / seconds,
        "peak_memory_gib": peak_memory_bytes() / 2**30,
        "memory_before_gib": before / 2**30,
        "bytes": size_on_disk(arguments.system),
        "cores": num_cores(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {n: version(n) for n in ("torch", "numpy", "bilm")},
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_text(arguments.output, json.dumps(tree, indent=1) + "\n")
    print(json.dumps(tree))
    return 0


def size_on_disk(system: Path) -> int:
    """Return the size of the files that the features need."""
    tree = read_json(system, CheckpointError)
    place = Path(tree.get("model") or tree.get("vectors") or system.parent)
    if place.is_file():
        return place.stat().st_size
    return sum(
        path.stat().st_size
        for path in place.rglob("*")
        if path.is_file() and not set(path.relative_to(place).parts) & set(NOT_COUNTED)
    )


if __name__ == "__main__":
    run_command(main)
