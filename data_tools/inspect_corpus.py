"""Print a summary of a corpus: `python -m data_tools.inspect_corpus corpus/`.

The summary has counts, the coverage of the vocabulary, the lengths of sentences and words, the
first and last words of the vocabulary, and a sample decoded to text; `--verify` first checks every
digest.

Cost: one pass over the lengths of sentences and over the lexicon; the words of a shard are read
only for the sample and by `--verify`.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.distributed.process import num_cores
from bilm.errors import ConfigError, run_command

if TYPE_CHECKING:
    from bilm.corpus.reader import Corpus

QUANTILES = {"min": 0.0, "1%": 0.01, "25%": 0.25, "50%": 0.5, "75%": 0.75, "99%": 0.99, "max": 1.0}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the flags, and print the summary."""
    parser = argparse.ArgumentParser(description="Print a summary of a corpus.")
    parser.add_argument("corpus", type=Path, help="a corpus directory")
    parser.add_argument(
        "--verify", action="store_true", help="verify the digest of every file first"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as a JSON object")
    parser.add_argument(
        "--words",
        type=int,
        default=10,
        help="words to show from each end of the vocabulary (default: 10)",
    )
    parser.add_argument(
        "--samples", type=int, default=5, help="sentences to show per split (default: 5)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the sampled sentences (default: 0)"
    )
    args = parser.parse_args(argv)
    if min(args.words, args.samples, args.seed) < 0:
        raise ConfigError("--words, --samples and --seed must not be negative")
    from bilm.corpus.reader import Corpus

    corpus = Corpus.open(args.corpus)
    if args.verify:
        verify(corpus)
    report = inspect(corpus, args.words, args.samples, args.seed)
    report["verified"] = args.verify
    if args.json:
        print(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        print_report(report)
    return 0


def verify(corpus: Corpus) -> None:
    """Check every digest, and report progress."""
    from bilm.corpus.verification import verify_corpus

    write_line = functools.partial(print, file=sys.stderr, flush=True)
    total = verify_corpus(corpus, full=True, num_threads=num_cores(), write_line=write_line)
    write_line(f"verified: all {total:,} bytes match the digests in corpus.json")


def inspect(corpus: Corpus, num_words: int, num_samples: int, seed: int) -> dict[str, Any]:
    """Return everything that the command prints, as values for JSON."""
    size, counts = corpus.vocabulary_size, corpus.lexicon.counts
    head = range(min(num_words, size))
    tail = range(max(len(head), size - num_words), size)
    num_types = len(counts)
    word_bytes = [len(corpus.lexicon.word_bytes(i)) for i in range(3, num_types)]
    return {
        "path": str(corpus.path),
        "fingerprint": corpus.fingerprint,
        "tokenizer": corpus.manifest.tokenizer.to_json(),
        "options": corpus.manifest.options,
        "vocabulary_size": size,
        "num_types": num_types,
        "word_bytes": quantiles(np.array(word_bytes), counts[3:]),
        "head": [[corpus.lexicon.word(i), int(counts[i])] for i in head],
        "tail": [[corpus.lexicon.word(i), int(counts[i])] for i in tail],
        "splits": {
            name: {
                "sentences": split.sentences,
                "words": split.words,
                "shards": len(split.shards),
                "unknown_words": split.unknown_words,
                "unknown_rate": split.unknown_words / max(split.words, 1),
                "sentence_words": quantiles(*sentence_lengths(corpus, name)),
                "sample": sample(corpus, name, num_samples, seed),
            }
            for name, split in corpus.splits.items()
        },
    }


def sentence_lengths(corpus: Corpus, split: str) -> tuple[Any, Any]:
    """Return the distinct sentence lengths of a split, and the number of sentences of each."""
    counts = np.zeros(1, dtype=np.int64)
    for index in range(len(corpus.blocks(split))):
        _, lengths = corpus.block(split, index, verify=False)
        block = np.bincount(lengths)
        if len(block) > len(counts):
            counts = np.concatenate([counts, np.zeros(len(block) - len(counts), dtype=np.int64)])
        counts[: len(block)] += block
    values = np.flatnonzero(counts)
    return values, counts[values]


def quantiles(values: Any, weights: Any) -> dict[str, int]:
    """Return the quantiles of `values`, each repeated as many times as its weight."""
    present = weights > 0
    values, weights = values[present], weights[present]
    if not len(values):
        return {}
    order = np.argsort(values, kind="stable")
    ends = np.cumsum(weights[order])
    places = [np.searchsorted(ends, max(1, np.ceil(q * ends[-1]))) for q in QUANTILES.values()]
    return {name: int(values[order[i]]) for name, i in zip(QUANTILES, places, strict=True)}


def sample(corpus: Corpus, split: str, num_samples: int, seed: int) -> list[str]:
    """Return random sentences of a split, as text."""
    block_sentences = corpus.blocks(split)["sentences"]
    num_sentences = int(block_sentences.sum())
    random = np.random.default_rng(seed)
    drawn = random.choice(num_sentences, size=min(num_samples, num_sentences), replace=False)
    ends = np.cumsum(block_sentences)
    tokenizer = corpus.tokenizer()
    texts = []
    for place in drawn.tolist():
        block = int(np.searchsorted(ends, place, side="right"))
        ids, lengths = corpus.block(split, block, verify=False)
        sentence = place - int(ends[block] - block_sentences[block])
        start = int(lengths[:sentence].sum())
        words = [
            corpus.lexicon.word(i) for i in ids[start : start + int(lengths[sentence])].tolist()
        ]
        texts.append(tokenizer.detokenize(words))
    return texts


def print_report(report: dict[str, Any]) -> None:
    """Print the result of `inspect` as text."""
    print(f"{report['path']} ({report['fingerprint'][:16]})")
    print(f"tokenizer: {json.dumps(report['tokenizer'])}")
    print(f"options: {json.dumps(report['options'])}")
    print(f"types: {report['num_types']:,}, vocabulary: {report['vocabulary_size']:,}")
    print(f"bytes per word: {_quantile_text(report['word_bytes'])}")
    for end in ("head", "tail"):
        words = ", ".join(f"{word} {count:,}" for word, count in report[end])
        print(f"{end} of the vocabulary: {words}")
    for name, split in report["splits"].items():
        print(
            f"\n{name}: {split['words']:,} words, {split['sentences']:,} sentences, "
            f"{split['shards']} shards, {split['unknown_rate']:.2%} <UNK>"
        )
        print(f"words per sentence: {_quantile_text(split['sentence_words'])}")
        for text in split["sample"]:
            print(f"  {text}")


def _quantile_text(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


if __name__ == "__main__":
    run_command(main)
