"""Train a character LM of one direction with flair's `LanguageModelTrainer` for a fixed time.

The text is the beginning of the training text, as long as the measured speed allows. flair reads it
in parts, and evaluates and anneals the learning rate after each part. An interrupted run starts
over. flair writes pickled files; the weights that are used later are saved as safetensors.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from bilm.distributed.process import configure_process
from bilm.errors import CorpusError, run_command
from bilm.files.writing import write_text

MAX_PARTS, MIN_PARTS = 40, 4  # of the text; about one per minute

SPEED_CHARACTERS = 400_000  # fewer characters underestimate the speed

HELDOUT_SENTENCES = 400

MIN_CHARACTER_COUNT = 20  # rarer characters are unknown

ALPHABET_SENTENCES = 200_000

SEQUENCE_CHARACTERS = 250

ROWS = 100


@dataclass(frozen=True)
class Settings:
    """The settings of a character LM; the learning rate is flair's default for SGD."""

    direction: Literal["forward", "backward"]
    hidden_dim: int = 512
    learning_rate: float = 20.0
    dropout: float = 0.1
    patience: int = 2  # parts
    seed: int = 0


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and write the weights, the alphabet, the learning curve and `language_model.json`."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison.char_lms")
    parser.add_argument("--direction", choices=("forward", "backward"), required=True)
    parser.add_argument("--text", type=Path, required=True, help="output of .text")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True, help="training time")
    parser.add_argument("--hidden-dim", type=int, default=512)
    parser.add_argument("--learning-rate", type=float, default=20.0)
    flags = vars(parser.parse_args(argv))
    text, output, minutes = (flags.pop(name) for name in ("text", "output", "minutes"))
    configure_process()
    tree = CharRun(text, output, Settings(**flags)).train(60 * minutes)
    print(json.dumps(tree))
    return 0


class CharRun:
    """The training of one direction, below `output`."""

    def __init__(self, text: Path, output: Path, settings: Settings) -> None:
        self._text, self._output, self._settings = text, output, settings
        self._alphabet = alphabet_of(islice(self._lines("train"), ALPHABET_SENTENCES))

    def train(self, seconds: float) -> dict[str, Any]:
        """Measure the speed, train on as much text as fits, and write the result."""
        from bilm.pretrained.tensors import save_tensors
        from experiments.comparison.learning_curve import LearningCurve

        parts = max(MIN_PARTS, min(MAX_PARTS, int(seconds // 60)))
        speed, evaluation_seconds = self._speed()
        left = max(seconds - (parts + 1) * evaluation_seconds, seconds / 2)
        num_characters, num_words = self._write_parts(int(left * speed), parts)
        start = time.monotonic()
        curve = LearningCurve(self._output / "curve.jsonl")
        curve.cut(-1)

        def record(part: int, loss: float, _: float) -> None:
            passed = time.monotonic() - start
            curve.add(step=part, seconds=passed, words=num_words * part // parts, loss=loss)

        model = self._run(record)
        seconds = time.monotonic() - start
        save_tensors(
            {name: value.contiguous() for name, value in model.state_dict().items()},
            self._output / "weights.safetensors",
        )
        tree = {
            "settings": asdict(self._settings),
            "alphabet": self._alphabet,
            "training": {
                "parameters": sum(p.numel() for p in model.parameters()),
                "characters": num_characters,
                "words": num_words,
                "seconds": seconds,
                "words_per_second": num_words / seconds,
            },
            "versions": {name: version(name) for name in ("torch", "flair")},
        }
        write_text(self._output / "language_model.json", json.dumps(tree, indent=1) + "\n")
        return {**tree, "alphabet": len(self._alphabet)}

    def _speed(self) -> tuple[float, float]:
        """Return the number of characters read per second, and the seconds of an evaluation."""
        num_characters, _ = self._write_parts(SPEED_CHARACTERS, 1)
        times: list[tuple[float, float]] = []
        start = time.monotonic()
        self._run(lambda part, loss, seconds: times.append((time.monotonic(), seconds)))
        end, evaluation_seconds = times[0]
        return num_characters / (end - start - evaluation_seconds), evaluation_seconds

    def _run(self, record: Any) -> Any:
        from experiments.comparison.char_model import new_model, timed_trainer

        model = new_model(self._settings, self._alphabet)
        trainer = timed_trainer(model, self._output / "text", self._settings, record)
        trainer.train(
            self._output / "flair",
            sequence_length=SEQUENCE_CHARACTERS,
            mini_batch_size=ROWS,
            learning_rate=self._settings.learning_rate,
            patience=self._settings.patience,
            max_epochs=1,
            num_workers=0,
        )
        return model

    def _lines(self, split: str) -> Iterator[str]:
        with (self._text / f"{split}.txt").open(encoding="utf-8") as file:
            yield from file

    def _write_parts(self, num_characters: int, num_parts: int) -> tuple[int, int]:
        """Write the directory that flair reads; return its numbers of characters and words."""
        directory = self._output / "text"
        (directory / "train").mkdir(parents=True, exist_ok=True)
        for old in (directory / "train").iterdir():
            old.unlink()
        heldout = "".join(islice(self._lines("heldout"), HELDOUT_SENTENCES))
        for name in ("valid.txt", "test.txt"):
            write_text(directory / name, heldout)
        lines = self._lines("train")
        total = words = 0
        for part in range(num_parts):
            limit = math.ceil(num_characters * (part + 1) / num_parts)
            chosen: list[str] = []
            while total < limit:
                line = next(lines, None)
                if line is None:  # the time is enough for more than one epoch
                    lines = self._lines("train")
                    continue
                chosen.append(line)
                total += len(line)
                words += line.count(" ") + 1
            write_text(directory / "train" / f"part_{part:03d}.txt", "".join(chosen))
        return total, words


def alphabet_of(lines: Iterator[str]) -> list[str]:
    """Return the frequent characters of a text, the most frequent first."""
    from collections import Counter

    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    if not counts:
        raise CorpusError("the text is empty; expected one sentence per line")
    return [c for c, count in counts.most_common() if count >= MIN_CHARACTER_COUNT]


if __name__ == "__main__":
    run_command(main)
