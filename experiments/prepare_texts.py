"""Convert downloaded texts to the formats that `data_tools` and `downstream` read.

AG News contains HTML remnants, and each line of SST-5 begins with its label. Test texts are never
part of a language model's training text.
"""

from __future__ import annotations

import csv
import html
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from bilm.errors import ConfigError
from bilm.files.writing import atomic_file
from bilm.text.lines import LineReader
from bilm.text.tables import Table

_TAG = re.compile(r"<[^<>]*>")

_SPACES = re.compile(r"\s+")

NUM_REVIEWS = 10_000  # of 50,000, to limit the training time

NEEDED = (
    "ag_news/train.csv.gz",
    "ag_news/test.csv.gz",
    "lm/reuters21578.txt.gz",
    "lm/imdb_unlabelled.txt.gz",
    "sst5/stsa.fine.train",
    "sst5/stsa.fine.dev",
    "sst5/stsa.fine.test",
    "glove/glove.6B.50d.top60k.txt.gz",
    "ud_english_ewt/train.conllu.gz",
    "ud_english_ewt/dev.conllu.gz",
    "ud_english_ewt/test.conllu.gz",
)


def check_data(data: Path) -> None:
    """Reject a data directory that lacks any of the files that the experiment reads."""
    missing = [name for name in NEEDED if not (data / name).is_file()]
    if missing:
        raise ConfigError(f"--data {data} lacks {', '.join(missing)}; see docs/results.md")


def prepare(data: Path, output: Path) -> None:
    """Write the texts that the experiment's commands read."""
    output.mkdir(parents=True, exist_ok=True)
    train = list(ag_news(data / "ag_news/train.csv.gz"))
    _write_csv(output / "ag_train.csv", train)
    _write_csv(output / "ag_test.csv", ag_news(data / "ag_news/test.csv.gz"))
    reuters = map(clean, LineReader(data / "lm/reuters21578.txt.gz").lines())
    _write_lines(output / "news.txt", [text for _, text in train] + list(reuters))
    reviews = LineReader(data / "lm/imdb_unlabelled.txt.gz").lines()
    _write_lines(output / "films.txt", map(clean, itertools.islice(reviews, NUM_REVIEWS)))
    prepare_sst5(data, output)


def prepare_sst5(data: Path, output: Path) -> None:
    """Write the sentences of SST-5 with their labels."""
    output.mkdir(parents=True, exist_ok=True)
    for name in ("train", "dev", "test"):
        _write_csv(output / f"sst5_{name}.csv", sst5(data / f"sst5/stsa.fine.{name}"))


def clean(text: str) -> str:
    r"""Remove HTML remnants: tags, entities, and `\` in place of a space.

    >>> clean(r"AT &amp;T&#39;s  shares\fall #36;2 <b>today</b> #39;s")
    "AT &T's shares fall $2 today 's"
    """
    text = text.replace("\\", " ").replace(" #39;", "'").replace("#36;", " $")
    text = html.unescape(html.unescape(text))
    return _SPACES.sub(" ", _TAG.sub(" ", text)).strip()


def ag_news(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the class, and the title joined with the description, of each row."""
    for row in Table("csv", columns=("1", "2", "3")).rows(LineReader(path)):
        label, title, description = row.cells
        yield label, clean(f"{title} {description}")


def sst5(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the class and the text of each line."""
    for line in LineReader(path).lines():
        label, _, text = line.partition(" ")
        yield label, text


def _write_csv(path: Path, rows: Iterable[tuple[str, str]]) -> None:
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("label", "text"))
        writer.writerows(rows)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines if line)
