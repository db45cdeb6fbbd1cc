"""The tasks: write their examples as tokens and labels, so that all systems read the same words.

AG News is raw text, which the moses tokenizer of the corpus splits into words. The other tasks have
words already. Of AG News, a sample of the training texts is used, because the slowest system embeds
less than a thousand words per second on a core; a tenth of the sample is the validation split.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bilm.errors import ConfigError, CorpusError, run_command
from bilm.files.writing import atomic_file
from bilm.text.lines import LineReader
from bilm.text.tokenizers import MosesTokenizer
from downstream.texts.conllu import read_conllu
from experiments.comparison.fractions import chosen_share, strata_of
from experiments.prepare_texts import ag_news, sst5

SPLITS = ("train", "validation", "test")

AG_NEWS_TEXTS = 5_000  # for training and validation

VALIDATION_SHARE = 0.1  # of AG News

Metric = Literal["accuracy", "span F1"]


@dataclass(frozen=True)
class Task:
    """A task; `is_pooled` tasks have one label per text, the others one label per word."""

    name: str
    title: str
    metric: Metric
    is_pooled: bool


TASKS = {
    "ag_news": Task("ag_news", "AG News", "accuracy", True),
    "sst5": Task("sst5", "SST-5", "accuracy", True),
    "ner": Task("ner", "CoNLL-2003 NER", "span F1", False),
    "pos": Task("pos", "EWT parts of speech", "accuracy", False),
}

NEEDED = (
    *(f"ag_news/{name}.csv.gz" for name in ("train", "test")),
    *(f"sst5/stsa.fine.{name}" for name in ("train", "dev", "test")),
    *(f"tasks/ner_conll2003/{name}.tsv.gz" for name in ("train", "dev", "test")),
    *(f"ud_english_ewt/{name}.conllu.gz" for name in ("train", "dev", "test")),
    "glove/glove.6B.50d.top60k.txt.gz",
)


@dataclass(frozen=True)
class Example:
    """The words of a text, and its label or one label per word."""

    words: tuple[str, ...]
    labels: tuple[str, ...]


def main(argv: Sequence[str] | None = None) -> int:
    """Write `TASK_SPLIT.jsonl` for every task and split."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison.tasks")
    parser.add_argument("--data", type=Path, required=True, help="directory of the task data")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--share", type=float, default=1.0, help="of the training texts to keep")
    arguments = parser.parse_args(argv)
    check_data(arguments.data)
    arguments.output.mkdir(parents=True, exist_ok=True)
    counts = {}
    for name, every in _every_split(arguments.data):
        examples = every
        if name.endswith("_train"):
            chosen = chosen_share(strata_of([e.labels for e in every]), arguments.share, seed=0)
            examples = [every[i] for i in chosen]
        path = arguments.output / f"{name}.jsonl"
        with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            for example in examples:
                row = {"words": example.words, "labels": example.labels}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        counts[name] = {"examples": len(examples), "words": sum(len(e.words) for e in examples)}
    print(json.dumps(counts))
    return 0


def check_data(data: Path) -> None:
    """Reject a data directory that lacks any of the files."""
    missing = [name for name in NEEDED if not (data / name).is_file()]
    if missing:
        raise ConfigError(f"--data {data} lacks {', '.join(missing)}; see docs/comparison.md")


def read_examples(tasks: Path, task: str, split: str) -> list[Example]:
    """Read the examples that the command wrote."""
    path = tasks / f"{task}_{split}.jsonl"
    if not path.is_file():
        raise CorpusError(f"{path} does not exist; run python -m experiments.comparison.tasks")
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [Example(tuple(row["words"]), tuple(row["labels"])) for row in rows]


def _every_split(data: Path) -> Iterator[tuple[str, list[Example]]]:
    tokenizer = MosesTokenizer()
    rows = list(ag_news(data / "ag_news/train.csv.gz"))
    sample = chosen_share(strata_of([(label,) for label, _ in rows]), AG_NEWS_TEXTS / len(rows), 0)
    train, test = (
        [Example(tuple(tokenizer.tokenize(text)), (label,)) for label, text in part]
        for part in ([rows[i] for i in sample], ag_news(data / "ag_news/test.csv.gz"))
    )
    heldout = set(chosen_share(strata_of([e.labels for e in train]), VALIDATION_SHARE, seed=0))
    yield "ag_news_train", [e for i, e in enumerate(train) if i not in heldout]
    yield "ag_news_validation", [e for i, e in enumerate(train) if i in heldout]
    yield "ag_news_test", test
    for split, name in zip(SPLITS, ("train", "dev", "test"), strict=True):
        texts = sst5(data / f"sst5/stsa.fine.{name}")
        yield f"sst5_{split}", [Example(tuple(text.split()), (label,)) for label, text in texts]
        lines = LineReader(data / f"tasks/ner_conll2003/{name}.tsv.gz").lines()
        yield f"ner_{split}", list(_tagged(lines))
        trees = read_conllu(data / f"ud_english_ewt/{name}.conllu.gz")
        yield f"pos_{split}", [Example(tree.words, tree.tags) for tree in trees]


def _tagged(lines: Iterable[str]) -> Iterator[Example]:
    """Yield the sentences of lines `word TAB tag`, which empty lines separate."""
    rows: list[list[str]] = []
    for line in [*lines, ""]:
        if line.strip():
            rows.append(line.rstrip("\r\n").split("\t"))
        elif rows:
            yield Example(tuple(row[0] for row in rows), tuple(row[1] for row in rows))
            rows = []


if __name__ == "__main__":
    run_command(main)
