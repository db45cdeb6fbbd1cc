"""Words and their tags from CoNLL-U files, plain or .gz."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bilm.errors import CorpusError

COLUMNS = {"upos": 3, "xpos": 4}

_NUM_COLUMNS = 10


@dataclass(frozen=True)
class TaggedSentence:
    """The syntactic words of a sentence, and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_conllu(path: Path | str, column: str = "upos") -> Iterator[TaggedSentence]:
    """The sentences of a file, one at a time; `column` is "upos" or "xpos".

    Ranges such as `1-2` (written words of several syntactic ones) and empty nodes such as `1.1` are
    passed over, so that every word has one tag.
    """
    path = Path(path)
    words: list[str] = []
    tags: list[str] = []
    for number, line in enumerate(_lines(path), 1):
        line = line.rstrip("\r\n")
        if not line.strip():
            if words:
                yield TaggedSentence(tuple(words), tuple(tags))
            words, tags = [], []
            continue
        if line.startswith("#"):
            continue
        cells = line.split("\t")
        if len(cells) != _NUM_COLUMNS:
            raise CorpusError(
                f"{path}, line {number} has {len(cells)} columns; CoNLL-U has {_NUM_COLUMNS}, "
                "separated by tabs"
            )
        if not cells[0].isdecimal():
            continue
        words.append(cells[1])
        tags.append(cells[COLUMNS[column]])
    if words:
        yield TaggedSentence(tuple(words), tuple(tags))


def _lines(path: Path) -> Iterator[str]:
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8", newline="\n") as file:
            yield from file
    except FileNotFoundError:
        raise CorpusError(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise CorpusError(f"{path} is not UTF-8; CoNLL-U files are") from None
    except (EOFError, zlib.error, OSError) as e:
        raise CorpusError(f"cannot read {path}: {e}") from None
