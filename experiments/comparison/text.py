"""Write the sentences of a corpus as text, one sentence per line, words separated by spaces.

All systems but the biLM, which reads the corpus itself, read these files in this order. The command
streams; it keeps the word types of the corpus in memory (about 40 MB for 400,000 types).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from bilm.corpus.reader import Corpus
from bilm.errors import CorpusError, run_command
from bilm.files.writing import atomic_file, write_text

SPLITS = ("train", "heldout")

DESCRIPTION = "text.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Write `train.txt`, `heldout.txt` and `text.json`."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison.text")
    parser.add_argument("--corpus", type=Path, required=True, help="directory of the corpus")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args(argv)
    corpus = Corpus.open(arguments.corpus)
    arguments.output.mkdir(parents=True, exist_ok=True)
    counts = {split: _write(corpus, split, arguments.output) for split in SPLITS}
    tree = {"fingerprint": corpus.fingerprint, "splits": counts}
    write_text(arguments.output / DESCRIPTION, json.dumps(tree, indent=1) + "\n")
    print(json.dumps(tree))
    return 0


def word_types(corpus: Corpus) -> list[str]:
    """Return every word type of a corpus, by id."""
    types = [corpus.lexicon.word(i) for i in range(len(corpus.lexicon))]
    for word in types:
        if word.split() != [word]:
            raise CorpusError(
                f"the corpus {corpus.path} has the word {word!r}, which contains white space; "
                "rebuild it with a tokenizer that splits words at white space"
            )
    return types


def sentences(corpus: Corpus, split: str, types: Sequence[str]) -> Iterator[list[str]]:
    """Yield the sentences of a split in the order of the corpus."""
    for block in range(len(corpus.blocks(split))):
        ids, lengths = corpus.block(split, block)
        words = [types[i] for i in ids.tolist()]
        start = 0
        for length in lengths.tolist():
            yield words[start : start + length]
            start += length


def _write(corpus: Corpus, split: str, output: Path) -> dict[str, int]:
    types = word_types(corpus)
    num_sentences = num_words = 0
    path = output / f"{split}.txt"
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for sentence in sentences(corpus, split, types):
            file.write(" ".join(sentence) + "\n")
            num_sentences += 1
            num_words += len(sentence)
    return {"sentences": num_sentences, "words": num_words}


if __name__ == "__main__":
    run_command(main)
