"""Compute the features of a task once, and store them as float16 arrays that heads map.

Tasks with one label per text get pooled features (texts, layers, 2 x dim): the mean and the maximum
over words. Tasks with one label per word get the features of every word (words, layers, dim).
Memory: the features of a group of texts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bilm.distributed.process import configure_process
from bilm.errors import CheckpointError, run_command
from bilm.files.writing import atomic_file
from experiments.comparison.features import Features, FloatArray, open_features
from experiments.comparison.tasks import SPLITS, TASKS, Example, read_examples

Stored = npt.NDArray[np.float16]  # (rows, layers, dim)

GROUP_TEXTS = 1024

_LARGEST = float(np.finfo(np.float16).max)


def main(argv: Sequence[str] | None = None) -> int:
    """Write `TASK_SPLIT.npy` for the splits of a task."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison.cache")
    parser.add_argument("--system", type=Path, required=True, help="a system.json")
    parser.add_argument("--tasks", type=Path, required=True, help="output of .tasks")
    parser.add_argument("--task", choices=list(TASKS), required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=list(SPLITS))
    arguments = parser.parse_args(argv)
    configure_process()
    features = open_features(arguments.system)
    arguments.output.mkdir(parents=True, exist_ok=True)
    figures = {}
    for split in arguments.splits:
        examples = read_examples(arguments.tasks, arguments.task, split)
        start = time.monotonic()
        path = arguments.output / f"{arguments.task}_{split}.npy"
        write_features(features, examples, path, TASKS[arguments.task].is_pooled)
        num_words = sum(len(example.words) for example in examples)
        figures[split] = {"words": num_words, "seconds": time.monotonic() - start}
    print(json.dumps(figures))
    return 0


def pooled(words: FloatArray) -> FloatArray:
    """Return the mean and the maximum over words: (layers, 2 x dim); zeros without words."""
    layers, num_words, dim = words.shape
    if not num_words:
        return np.zeros((layers, 2 * dim), np.float32)
    both: FloatArray = np.concatenate([words.mean(axis=1), words.max(axis=1)], axis=-1)
    return both


def write_features(
    features: Features, examples: Sequence[Example], path: Path, is_pooled: bool
) -> None:
    """Write the features of the examples, in their order."""
    rows = len(examples) if is_pooled else sum(len(example.words) for example in examples)
    dim = features.dim * (2 if is_pooled else 1)
    with atomic_file(path) as temporary:
        shape = (rows, features.num_layers, dim)
        target = np.lib.format.open_memmap(temporary, "w+", dtype=np.float16, shape=shape)
        done = 0
        for part in _rows(features, examples, is_pooled):
            target[done : done + len(part)] = np.clip(part, -_LARGEST, _LARGEST)
            done += len(part)
        target.flush()
    if done != rows:
        raise CheckpointError(f"the system returned {done} rows for {path}; expected {rows}")


def _rows(features: Features, examples: Sequence[Example], is_pooled: bool) -> Iterator[FloatArray]:
    """Yield rows (rows, layers, dim) of the examples, in their order."""
    for start in range(0, len(examples), GROUP_TEXTS):
        group = [example.words for example in examples[start : start + GROUP_TEXTS]]
        for words in features.words(group):
            if not np.isfinite(words).all():
                raise CheckpointError("the system produced NaN or infinity; train it again")
            yield pooled(words)[None] if is_pooled else words.transpose(1, 0, 2)


def open_stored(directory: Path, task: str, split: str) -> Stored:
    """Map the features of a split."""
    path = directory / f"{task}_{split}.npy"
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; run python -m experiments.comparison.cache")
    stored: Stored = np.load(path, mmap_mode="r", allow_pickle=False)
    return stored


if __name__ == "__main__":
    run_command(main)
