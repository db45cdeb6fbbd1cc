"""downstream/analyses/occurrences."""

from __future__ import annotations

import argparse
import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bilm.errors import CorpusError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from bilm.embedding.embedder import Embedder
    from bilm.text.tokenizers import Tokenizer

    Floats = npt.NDArray[np.float32]

MEASURED_NEIGHBOURS = 10  # neighbours whose labels are compared
SHOWN_WORDS = 9  # on each side of the word


@dataclass(frozen=True)
class Occurrence:
    """The word at a place in a sentence."""

    words: tuple[str, ...]
    place: int
    label: str | None = None

    def marked(self) -> str:
        """The word in brackets, with some words around it."""
        start, end = max(0, self.place - SHOWN_WORDS), self.place + SHOWN_WORDS + 1
        before, after = self.words[start : self.place], self.words[self.place + 1 : end]
        parts = [*before, f"[{self.words[self.place]}]", *after]
        return ("… " if start else "") + " ".join(parts) + (" …" if end < len(self.words) else "")


def find_occurrences(
    sentences: Iterator[tuple[str, str | None]], word: str, tokenizer: Tokenizer, limit: int
) -> list[Occurrence]:
    """The first occurrence of the word in each sentence, in either case; each sentence once."""
    found: list[Occurrence] = []
    seen: set[tuple[str, ...]] = set()
    wanted = word.lower()
    for text, label in sentences:
        if wanted not in text.lower():
            continue
        words = tuple(tokenizer.tokenize(text))
        # A piece of sentencepiece that begins a word has a mark before it.
        places = [i for i, other in enumerate(words) if other.lower().lstrip("▁") == wanted]
        if places and words not in seen:
            seen.add(words)
            found.append(Occurrence(words, places[0], label))
            if len(found) == limit:
                break
    return found


def occurrence_vectors(embedder: Embedder, occurrences: Sequence[Occurrence]) -> Floats:
    """The word's vector in each sentence, by layer (layers, occurrences, dim)."""
    import numpy as np

    from downstream.features.texts_to_layers import embed_texts, windows_of

    texts = [list(occurrence.words) for occurrence in occurrences]
    rows: list[Floats] = []
    for window in windows_of(texts):
        for layers in embed_texts(embedder, window):
            rows.append(layers[occurrences[len(rows)].place].copy())  # and let the rest go
    return np.stack(rows, axis=1)


def cosines(first: Floats, second: Floats) -> Floats:
    """Between all rows of one and all of the other; 0 where a vector is."""
    import numpy as np

    def unit(rows: Floats) -> Floats:
        scaled: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return scaled

    result: Floats = unit(first) @ unit(second).T
    return result


def label_purities(found: Sequence[Occurrence], vectors: Floats) -> list[float] | None:
    """By layer, how many of the ten nearest neighbours have the occurrence's own label."""
    import numpy as np

    if any(occurrence.label is None for occurrence in found):
        return None
    labels = np.array([occurrence.label for occurrence in found])
    count = min(MEASURED_NEIGHBOURS, len(found) - 1)
    rng = np.random.default_rng(0)
    result = []
    for layer in vectors:
        similar = cosines(layer, layer)
        np.fill_diagonal(similar, -np.inf)
        # Equal cosines, as of the same spelling in layer 0, in random order
        ties = rng.random(similar.shape)
        nearest = np.lexsort((ties, -similar.round(5)), axis=1)[:, :count]
        result.append(float((labels[nearest] == labels[:, None]).mean()))
    return result


def _sentences(arguments: argparse.Namespace) -> Iterator[tuple[str, str | None]]:
    if arguments.label_column is not None:
        from downstream.settings.flags import names
        from downstream.texts.labelled import read_labelled

        columns = names(arguments.text_columns)
        data = read_labelled(
            arguments.text, label_column=arguments.label_column, text_columns=columns
        )
        yield from zip(data.texts, data.labels, strict=True)
        return
    path = arguments.text
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as file:
            for line in file:
                yield line, None
    except FileNotFoundError:
        raise CorpusError(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise CorpusError(f"{path} is not UTF-8 text; convert it") from None
    except (EOFError, zlib.error, OSError) as e:
        raise CorpusError(f"cannot read {path}: {e}") from None


def _tokenizer(embedder: Embedder, arguments: argparse.Namespace) -> Tokenizer:
    from bilm.text.tokenizers import WhitespaceTokenizer, require_tokenizer

    if arguments.tokenized:
        return WhitespaceTokenizer()
    remedy = "tokenize the text, separate words by spaces, and pass --tokenized"
    return require_tokenizer(embedder.pretrained.tokenizer, remedy, arguments.model)
