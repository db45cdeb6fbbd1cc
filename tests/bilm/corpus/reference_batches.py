"""A slow, simple implementation of batches in plain Python, as the reference for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bilm.corpus.batches import Batch, BatchStream
from bilm.corpus.reader import Corpus
from bilm.text.characters import char_ids
from bilm.text.vocabulary import IGNORED

Sentence = list[str]
Slot = tuple[str, str, str | None, str | None]  # inputs and targets, forward and backward


def numbered(lengths: list[int]) -> list[Sentence]:
    """Return sentences of distinct words, so that a prediction identifies its position."""
    return [[f"{i}.{j}" for j in range(length)] for i, length in enumerate(lengths)]


def predictions(sentence: Sentence) -> list[Slot]:
    """Return the n+1 predictions of a sentence, in both directions."""
    forward = ["<S>", *sentence, "</S>"]
    backward = ["</S>", *sentence[::-1], "<S>"]
    return list(zip(forward, backward, forward[1:], backward[1:], strict=False))


def blocks_of(sentences: list[Sentence], block_words: int) -> list[list[Sentence]]:
    blocks: list[list[Sentence]] = []
    for sentence in sentences:
        if not blocks or sum(map(len, blocks[-1])) + len(sentence) > block_words:
            blocks.append([])
        blocks[-1].append(sentence)
    return blocks


def epoch_order(blocks: list[list[Sentence]], seed: int | None, epoch: int) -> list[Sentence]:
    order: Sequence[int] = range(len(blocks))
    if seed is not None:
        order = np.random.default_rng((seed, epoch)).permutation(len(blocks)).tolist()
    return [sentence for i in order for sentence in blocks[i]]


def cut_epoch(sentences: list[Sentence], rows: int, unroll: int) -> list[list[list[Slot]]]:
    """Return the steps of an epoch, each a list of rows, each a list of slots."""
    stream = [slot for sentence in sentences for slot in predictions(sentence)]
    width = -(-len(stream) // rows)
    table = []
    for row in range(rows):
        start, stop = row * len(stream) // rows, (row + 1) * len(stream) // rows
        slots = stream[start:stop]
        if len(slots) < width:
            slots.append((*stream[stop][:2], None, None))
        table.append(slots)
    return [[row[t : t + unroll] for row in table] for t in range(0, width, unroll)]


def dealt_steps(
    sentences: Iterator[Sentence], rows: int, unroll: int
) -> Iterator[list[list[Slot]]]:
    rests: list[list[Slot]] = [[] for _ in range(rows)]
    while True:
        step = []
        for row in range(rows):
            while len(rests[row]) < unroll:
                rests[row] += predictions(next(sentences))
            step.append(rests[row][:unroll])
            rests[row] = rests[row][unroll:]
        yield step


def slots_of(batch: Batch, corpus: Corpus) -> list[list[Slot]]:
    """Check the characters and the distinct words of a batch, and return its rows of slots."""
    words = [corpus.lexicon.word(i) for i in batch.words]
    assert len(set(words)) == len(words)
    assert set(np.unique(batch.word_index)) == set(range(len(words)))
    assert np.array_equal(batch.char_ids, char_ids(words))
    assert batch.num_predictions == np.count_nonzero(batch.targets[0] != IGNORED)
    assert batch.num_predictions == np.count_nonzero(batch.targets[1] != IGNORED)
    inputs = [[[words[i] for i in row] for row in plane] for plane in batch.word_index]
    known = corpus.vocabulary.words
    targets = [
        [[None if i == IGNORED else known[i] for i in row] for row in plane]
        for plane in batch.targets.tolist()
    ]
    return [list(zip(*planes, strict=True)) for planes in zip(*inputs, *targets, strict=True)]


def joined(streams: list[BatchStream], step: int) -> list[list[Slot]]:
    """Return the global batch: the rows of all micro-batches of all ranks, in order."""
    rows: list[list[Slot]] = []
    for stream in streams:
        for micro in range(stream.accumulation):
            rows += slots_of(stream.batch(step, micro), stream.corpus)
    return rows
