"""WordPiece: train the vocabulary, encode the words of the corpus, and pack them for the masked LM.

Every word type is encoded once. A packed row is `[CLS]` followed by pieces of consecutive
sentences, each of which ends with `[SEP]`. Memory: the pieces of all word types and the packed rows
(2 bytes per piece).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bilm.corpus.reader import Corpus
from bilm.errors import CheckpointError, run_command
from bilm.files.writing import atomic_file, write_text
from experiments.comparison.text import SPLITS, word_types

ROW_PIECES = 128

PAD, UNKNOWN, CLS, SEP, MASK = SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

TOKENIZER_FILE = "tokenizer.json"

Rows = npt.NDArray[np.uint16]  # (rows, ROW_PIECES)

Ids = npt.NDArray[np.int64]


def main(argv: Sequence[str] | None = None) -> int:
    """Write `tokenizer.json`, `train.npy` and `heldout.npy`."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison.pieces")
    parser.add_argument("--corpus", type=Path, required=True, help="directory of the corpus")
    parser.add_argument("--text", type=Path, required=True, help="its sentences, one per line")
    parser.add_argument("--size", type=int, default=16_000, help="of the vocabulary")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / TOKENIZER_FILE
    if not path.is_file():
        write_text(path, trained_tokenizer(arguments.text, arguments.size).to_str())
    pieces = Pieces.open(arguments.output)
    corpus = Corpus.open(arguments.corpus)
    by_type = [pieces.of_word(word) for word in word_types(corpus)]
    counts: dict[str, int] = {"vocabulary": pieces.size}
    for split in SPLITS:
        rows = _packed(corpus, split, by_type, pieces)
        path = arguments.output / f"{split}.npy"
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.save(file, rows, allow_pickle=False)
        counts[f"{split}_pieces"] = int(rows.size)
        counts[f"{split}_words"] = corpus.split(split).words
    write_text(arguments.output / "pieces.json", json.dumps(counts, indent=1) + "\n")
    print(json.dumps(counts))
    return 0


def trained_tokenizer(text: Path, size: int) -> Any:
    """Train a cased WordPiece vocabulary with BERT's normalization and splitting."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.trainers import WordPieceTrainer

    tokenizer = Tokenizer(WordPiece(unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    trainer = WordPieceTrainer(
        vocab_size=size,
        special_tokens=list(SPECIALS),
        limit_alphabet=1000,
        continuing_subword_prefix="##",
        show_progress=False,
    )
    tokenizer.train([str(text)], trainer)
    return tokenizer


class Pieces:
    """The pieces of words; the pieces of each word are computed once and kept."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._of_word: dict[str, list[int]] = {}
        ids = [tokenizer.token_to_id(name) for name in SPECIALS]
        if ids != list(range(len(SPECIALS))):
            raise CheckpointError(
                f"the special pieces of the tokenizer have the ids {ids}; expected 0 to 4. "
                "Train it with python -m experiments.comparison.pieces"
            )
        self.pad, self.unknown, self.cls, self.sep, self.mask = range(len(SPECIALS))

    @classmethod
    def open(cls, directory: Path) -> Pieces:
        """Read `tokenizer.json` of a directory."""
        from tokenizers import Tokenizer

        path = directory / TOKENIZER_FILE
        if not path.is_file():
            raise CheckpointError(f"{path} does not exist; train the vocabulary first")
        return cls(Tokenizer.from_file(str(path)))

    @property
    def size(self) -> int:
        """The number of pieces of the vocabulary."""
        return int(self._tokenizer.get_vocab_size())

    def of_word(self, word: str) -> list[int]:
        """Return the ids of a word; a word that normalization removes is `[UNK]`."""
        ids = self._of_word.get(word)
        if ids is None:
            encoded = self._tokenizer.encode(word, add_special_tokens=False)
            ids = list(encoded.ids) or [self.unknown]
            self._of_word[word] = ids
        return ids


def packed_rows(stream: Iterator[Ids], cls_id: int) -> Rows:
    """Cut a stream of pieces into rows that begin with `[CLS]`; drop an incomplete last row."""
    width = ROW_PIECES - 1
    pieces = np.concatenate([np.empty(0, np.uint16), *(ids.astype(np.uint16) for ids in stream)])
    body = pieces[: len(pieces) // width * width].reshape(-1, width)
    start = np.full((len(body), 1), cls_id, np.uint16)
    rows: Rows = np.concatenate([start, body], axis=1)
    return rows


def _packed(corpus: Corpus, split: str, by_type: Sequence[Sequence[int]], pieces: Pieces) -> Rows:
    def stream() -> Iterator[Ids]:
        for block in range(len(corpus.blocks(split))):
            ids, lengths = corpus.block(split, block)
            ends = set(np.cumsum(lengths).tolist())
            flat: list[int] = []
            for place, word in enumerate(ids.tolist(), 1):
                flat += by_type[word]
                if place in ends:
                    flat.append(pieces.sep)
            yield np.array(flat, dtype=np.int64)

    return packed_rows(stream(), pieces.cls)


if __name__ == "__main__":
    run_command(main)
