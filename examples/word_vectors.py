"""Contextual vectors of your own text: `python examples/word_vectors.py [FILE]`

Reads a text file with one sentence per line (without one, four sentences with the word "bank") and
prints how similar the occurrences of a word are in each layer. Layer 0 does not depend on the
context, so the same word always has the same vector there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from bilm import Embedder

SENTENCES = [
    "We walked along the bank of the river and watched the boats .",
    "The grass on the bank was wet from the flood .",
    "The bank refused to lend him any more money .",
    "She paid the money into her account at the bank .",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="text with one sentence per line")
    parser.add_argument("--word", default="bank", help="the word to compare (default: bank)")
    parser.add_argument("--model", default="english-small", help="a model (default: english-small)")
    arguments = parser.parse_args()
    sentences = SENTENCES
    if arguments.file is not None:
        sentences = arguments.file.read_text(encoding="utf-8").splitlines()

    embedder = Embedder.from_pretrained(arguments.model)
    tokenizer = embedder.pretrained.tokenizer
    words = [tokenizer.tokenize(sentence) for sentence in sentences]
    arrays = embedder.embed(words)  # one (layers, words, dim) array per sentence

    vectors = [
        a[:, w.index(arguments.word)]
        for a, w in zip(arrays, words, strict=True)
        if arguments.word in w
    ]
    if len(vectors) < 2:
        raise SystemExit(f"{arguments.word!r} occurs in fewer than two sentences")
    for layer, stacked in enumerate(np.stack(vectors, axis=1)):  # (occurrences, dim)
        unit = stacked / np.linalg.norm(stacked, axis=1, keepdims=True)
        print(f"layer {layer}: cosine similarity of the occurrences of {arguments.word!r}")
        print(np.array2string(unit @ unit.T, precision=2, suppress_small=True))


if __name__ == "__main__":
    main()
