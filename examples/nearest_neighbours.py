"""Nearest neighbours of a word in context: `python examples/nearest_neighbours.py TEXT`

Embeds the sentences of a text file (by default, the pages in docs/ of this repository) and prints
the words whose top-layer vectors are nearest to a word of a query sentence.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from bilm import Embedder, Output

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="*", help="text files (default: docs/*.md)")
    parser.add_argument("--query", default="The model reads every word of the text once .")
    parser.add_argument("--word", default="reads", help="the word of the query (default: reads)")
    parser.add_argument("--model", default="english-small", help="a model (default: english-small)")
    arguments = parser.parse_args()

    lines = [
        line.strip()
        for path in arguments.file or sorted(DOCS.glob("*.md"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line[:1].isalpha()  # paragraphs, not headings, tables and code
    ]
    embedder = Embedder.from_pretrained(arguments.model)
    sentences = [embedder.pretrained.tokenizer.tokenize(line) for line in lines]
    words = [(s, i) for s, sentence in enumerate(sentences) for i in range(len(sentence))]
    top = np.concatenate(embedder.embed(sentences, output=Output(layers="top")))  # (words, dim)
    top /= np.linalg.norm(top, axis=1, keepdims=True)

    query = arguments.query.split()
    vector = embedder.embed([query], output=Output(layers="top"))[0][query.index(arguments.word)]
    cosines = top @ (vector / np.linalg.norm(vector))
    print(f"nearest to {arguments.word!r} in: {arguments.query}")
    for place in np.argsort(-cosines)[:10]:
        sentence, i = words[place]
        context = " ".join(sentences[sentence][max(0, i - 5) : i + 6])
        print(f"{cosines[place]:.2f}  {sentences[sentence][i]:<12} {context}")


if __name__ == "__main__":
    main()
