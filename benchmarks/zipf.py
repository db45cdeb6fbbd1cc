"""Write a corpus of words drawn from Zipf's law, for benchmarks with any vocabulary size.

    python benchmarks/zipf.py --output corpus --vocabulary 793471

The lengths of the words resemble English. Takes seconds, and 4 bytes of disk per word.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from bilm.corpus.manifest import TRAIN, VOCABULARY_FILE
from bilm.corpus.writer import SplitWriter, write_lexicon, write_manifest
from bilm.errors import CorpusError, run_command
from bilm.files.writing import atomic_directory
from bilm.text.characters import SPECIAL_WORDS
from bilm.text.tokenizers import TokenizerSpec

MEAN_SENTENCE_WORDS = 25


def write_zipf_corpus(
    directory: Path, num_words: int, num_types: int, vocabulary_size: int, seed: int
) -> None:
    """Write a corpus without a held-out split into an empty directory."""
    rng = np.random.default_rng(seed)
    num_sentences = max(1, num_words // MEAN_SENTENCE_WORDS)
    lengths = rng.geometric(1 / MEAN_SENTENCE_WORDS, size=num_sentences)
    num_spelled = num_types - len(SPECIAL_WORDS)
    weights = np.cumsum(1 / np.arange(1, num_spelled + 1))
    draws = rng.random(int(lengths.sum())) * weights[-1]
    ids = np.searchsorted(weights, draws).astype(np.int32) + np.int32(len(SPECIAL_WORDS))
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", dtype=np.uint8)
    spelled = (
        f"{letters[rng.integers(26, size=size)].tobytes().decode()}{i}".encode()
        for i, size in enumerate(rng.integers(1, 10, size=num_spelled))
    )
    types = [*(word.encode() for word in SPECIAL_WORDS), *spelled]
    write_lexicon(directory, types, np.bincount(ids, minlength=len(types)))
    (directory / VOCABULARY_FILE).write_bytes(
        b"".join(b"%s\n" % w for w in types[:vocabulary_size])
    )
    writer = SplitWriter(directory, TRAIN, shard_words=1_000_000)
    writer.add(ids, lengths.astype(np.int32))
    write_manifest(
        directory,
        tokenizer=TokenizerSpec(name="whitespace"),
        options={"seed": seed},
        vocabulary_size=vocabulary_size,
        splits={TRAIN: writer.close()},
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="directory to write")
    parser.add_argument(
        "--vocabulary", type=int, default=50_000, help="size of the softmax vocabulary"
    )
    parser.add_argument("--types", type=int, help="word types (default: the vocabulary)")
    parser.add_argument("--words", type=int, default=1_000_000, help="approximate number of words")
    parser.add_argument("--seed", type=int, default=1, help="seed of the text (default: 1)")
    arguments = parser.parse_args()
    types = arguments.types or arguments.vocabulary
    with atomic_directory(arguments.output, CorpusError) as temporary:
        write_zipf_corpus(temporary, arguments.words, types, arguments.vocabulary, arguments.seed)


if __name__ == "__main__":
    run_command(main)
