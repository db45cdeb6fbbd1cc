"""Convert documents between nested lists and arrays."""

from __future__ import annotations

import itertools

import numpy as np

from data_tools.building.spool import Sentences


def join_documents(documents: list[list[list[int]]]) -> Sentences:
    """Return the arrays of some documents, each a list of sentences of word ids."""
    flat = [sentence for document in documents for sentence in document]
    return Sentences(
        np.array([word for sentence in flat for word in sentence], np.int32),
        np.array([len(sentence) for sentence in flat], np.int32),
        np.array([len(document) for document in documents], np.int32),
    )


def documents_of(batches: list[Sentences]) -> list[list[list[int]]]:
    """Return the documents of some arrays."""
    result = []
    for batch in batches:
        words = iter(batch.ids.tolist())
        lengths = iter(batch.lengths.tolist())
        for num_sentences in batch.sentences_per_line.tolist():
            result.append(
                [list(itertools.islice(words, n)) for n in itertools.islice(lengths, num_sentences)]
            )
    return result


DOCUMENTS = [[[i, i + 1][: 1 + i % 2]] * (1 + i % 3) for i in range(0, 400, 2)]
