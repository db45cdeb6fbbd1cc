"""Generate the demo text: `python -m data_tools.generate_demo --output demo/text`.

The text is drawn from the grammar in `data_tools/demo/demo_grammar.py`: `train.txt` and
`heldout.txt` (tokenized, one sentence per line), `train.csv` and `test.csv` (each
sentence with its topic as the label), and `grammar.json` with the exact entropy. The entropy gives
the lowest possible perplexity, on the grammar and on the sentences in `heldout.txt`, before any
model is trained.

Cost: about 10 microseconds per sentence.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bilm.errors import ConfigError, CorpusError, run_command
from bilm.files.writing import atomic_directory
from data_tools.demo.demo_grammar import demo_grammar
from data_tools.demo.grammar import Grammar, Sentence

DEFAULT_SENTENCES = 60_000  # about 400,000 words
HELDOUT_SHARE = 0.05
NUM_LABELLED = {"train.csv": 2_000, "test.csv": 1_000}
GRAMMAR_FILE = "grammar.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the flags, generate the text and print a summary."""
    parser = argparse.ArgumentParser(
        description="Generate text from a grammar of known entropy, with topics as labels.",
    )
    add = parser.add_argument
    add("--output", required=True, type=Path, help="directory to create")
    add("--seed", type=int, default=0, help="seed of the random sentences (default: 0)")
    add(
        "--sentences",
        type=int,
        default=DEFAULT_SENTENCES,
        metavar="N",
        help="sentences in train.txt, of 6.8 words on average; heldout.txt has 5%% as many "
        "(default: %(default)s)",
    )
    add("--overwrite", action="store_true", help="replace an existing demo text")
    args = parser.parse_args(argv)
    if args.sentences < 1:
        raise ConfigError(f"--sentences is {args.sentences}; it must be at least 1")
    if args.seed < 0:
        raise ConfigError(f"--seed is {args.seed}; it must be at least 0")
    facts = generate(args.output, args.seed, args.sentences, args.overwrite)
    print(
        f"{args.output}: {facts['train_words']:,} words, {facts['vocabulary']} types; the lowest "
        f"possible perplexity, forward or backward, is {facts['limit_perplexity']:.4f}, and "
        f"{facts['heldout_limit_perplexity']:.4f} on heldout.txt"
    )
    return 0


def generate(output: Path, seed: int, num_sentences: int, overwrite: bool) -> dict[str, Any]:
    """Write all files, and return the content of `grammar.json`."""
    if overwrite and output.exists() and not (output / GRAMMAR_FILE).is_file():
        raise CorpusError(
            f"{output} is not a demo text (it has no {GRAMMAR_FILE}), so --overwrite does not "
            "replace it; remove it yourself, or choose another path"
        )
    grammar = demo_grammar()
    random = np.random.default_rng(seed)
    train = grammar.sample(num_sentences, random)
    heldout = grammar.sample(max(1, round(num_sentences * HELDOUT_SHARE)), random)
    facts = _facts(grammar, train, heldout, seed)
    with atomic_directory(output, CorpusError, overwrite) as directory:
        _write_text(directory / "train.txt", train)
        _write_text(directory / "heldout.txt", heldout)
        for name, size in NUM_LABELLED.items():
            _write_labelled(directory / name, grammar.sample(size, random))
        (directory / GRAMMAR_FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return facts


def _facts(
    grammar: Grammar, train: list[Sentence], heldout: list[Sentence], seed: int
) -> dict[str, Any]:
    surprise = -math.fsum(sentence.log_probability for sentence in heldout)
    predictions = sum(len(sentence.words) + 1 for sentence in heldout)
    return {
        "seed": seed,
        "topics": grammar.topics,
        "vocabulary": len(grammar.vocabulary),
        "entropy_nats": grammar.entropy,
        "expected_words": grammar.expected_words,
        "limit_perplexity": grammar.limit_perplexity,
        "heldout_limit_perplexity": math.exp(surprise / predictions),
        "train_sentences": len(train),
        "train_words": sum(len(sentence.words) for sentence in train),
        "heldout_sentences": len(heldout),
        "heldout_words": predictions - len(heldout),
    }


def _write_text(path: Path, sentences: list[Sentence]) -> None:
    text = "".join(f"{' '.join(sentence.words)}\n" for sentence in sentences)
    path.write_text(text, encoding="utf-8")


def _write_labelled(path: Path, sentences: list[Sentence]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["label", "text"])
        writer.writerows([sentence.topic, " ".join(sentence.words)] for sentence in sentences)


if __name__ == "__main__":
    run_command(main)
