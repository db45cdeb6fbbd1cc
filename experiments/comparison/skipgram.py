"""Train skip-gram vectors for a fixed time with gensim: word2vec, or fastText with n-grams.

The number of epochs is derived from the measured speed. If the time is too short for one epoch, the
beginning of the text is read once. An interrupted run starts over.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bilm.distributed.process import num_cores
from bilm.errors import CheckpointError, ConfigError, run_command
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from experiments.comparison.features import SYSTEM_FILE
from experiments.comparison.table_features import GRAMS_FILE, VECTORS_FILE, save_table

SPEED_SENTENCES = 100_000


@dataclass(frozen=True)
class Settings:
    """The settings of gensim; the defaults are those of word2vec and fastText."""

    kind: Literal["word2vec", "fasttext"]
    dim: int
    learning_rate: float
    window: int = 5
    negative: int = 5
    min_count: int = 5
    min_gram: int = 3
    max_gram: int = 6
    buckets: int = 2_000_000
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    """The text to read, and how often."""

    text: Path
    epochs: int
    words: int  # of all epochs


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and write the vectors and `system.json`."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison.skipgram")
    parser.add_argument("--kind", choices=("word2vec", "fasttext"), required=True)
    parser.add_argument("--text", type=Path, required=True, help="output of .text")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True, help="training time")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, help="default: 0.025, for fastText 0.05")
    parser.add_argument("--buckets", type=int, default=2_000_000, help="of character n-grams")
    arguments = parser.parse_args(argv)
    if arguments.minutes <= 0:
        raise ConfigError(f"--minutes is {arguments.minutes}; it must be above 0")
    rate = arguments.learning_rate or (0.05 if arguments.kind == "fasttext" else 0.025)
    settings = Settings(arguments.kind, arguments.dim, rate, buckets=arguments.buckets)
    arguments.output.mkdir(parents=True, exist_ok=True)
    plan, speed = _plan(settings, arguments.text, arguments.output, 60 * arguments.minutes)
    tree = _train(settings, plan, arguments.output)
    tree["training"]["measured_words_per_second"] = speed
    write_text(arguments.output / SYSTEM_FILE, json.dumps(tree, indent=1) + "\n")
    print(json.dumps(tree))
    return 0


def _new_model(settings: Settings) -> Any:
    from gensim.models import FastText, Word2Vec

    shared: dict[str, Any] = {
        "sg": 1,
        "vector_size": settings.dim,
        "alpha": settings.learning_rate,
        "window": settings.window,
        "negative": settings.negative,
        "min_count": settings.min_count,
        "workers": num_cores(),
        "seed": settings.seed,
    }
    if settings.kind == "word2vec":
        return Word2Vec(**shared)
    return FastText(
        **shared, min_n=settings.min_gram, max_n=settings.max_gram, bucket=settings.buckets
    )


def _plan(settings: Settings, text: Path, output: Path, seconds: float) -> tuple[Plan, float]:
    """Measure the speed on the beginning of the text, and choose what to read."""
    sample = output / "sample.txt"
    num_words = _write_beginning(text / "train.txt", sample, max_sentences=SPEED_SENTENCES)
    model = _new_model(settings)
    start = time.monotonic()
    model.build_vocab(corpus_file=str(sample))
    middle = time.monotonic()
    _fit(model, sample, 1)
    speed = num_words / (time.monotonic() - middle)
    every: int = read_json(text / "text.json", CheckpointError)["splits"]["train"]["words"]
    # The vocabulary of the whole text is counted as part of the training time.
    vocabulary_seconds = (middle - start) * min(every, seconds * speed) / num_words
    left = max(seconds - vocabulary_seconds, seconds / 2)
    total = max(int(speed * left), 1)
    if total >= every:
        sample.unlink()
        epochs = total // every
        return Plan(text / "train.txt", epochs, epochs * every), speed
    words = _write_beginning(text / "train.txt", sample, max_words=total)
    return Plan(sample, 1, words), speed


def _write_beginning(
    source: Path, target: Path, max_sentences: int | None = None, max_words: int | None = None
) -> int:
    """Copy the beginning of a text, and return its number of words."""
    num_words = 0
    with source.open(encoding="utf-8") as lines, target.open("w", encoding="utf-8") as file:
        for line in islice(lines, max_sentences):
            file.write(line)
            num_words += line.count(" ") + 1
            if max_words is not None and num_words >= max_words:
                break
    return num_words


def _fit(model: Any, text: Path, epochs: int) -> None:
    model.train(
        corpus_file=str(text),
        total_words=model.corpus_total_words,
        total_examples=model.corpus_count,
        epochs=epochs,
    )


def _train(settings: Settings, plan: Plan, output: Path) -> dict[str, Any]:
    start = time.monotonic()
    model = _new_model(settings)
    model.build_vocab(corpus_file=str(plan.text))
    _fit(model, plan.text, plan.epochs)
    seconds = time.monotonic() - start
    arrays = {VECTORS_FILE: np.asarray(model.wv.vectors)}
    parameters = 2 * model.wv.vectors.size  # with the output vectors
    if settings.kind == "fasttext":
        arrays[GRAMS_FILE] = np.asarray(model.wv.vectors_ngrams)
        parameters += model.wv.vectors_ngrams.size
    save_table(output, model.wv.index_to_key, arrays)
    (output / "sample.txt").unlink(missing_ok=True)
    return {
        "kind": settings.kind,
        "settings": asdict(settings),
        "training": {
            "parameters": int(parameters),
            "epochs": plan.epochs,
            "seconds": seconds,
            "words": plan.words,
            "words_per_second": plan.words / seconds,
        },
        "versions": {"gensim": version("gensim")},
    }


if __name__ == "__main__":
    run_command(main)
