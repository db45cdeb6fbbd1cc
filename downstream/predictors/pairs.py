"""`PairClassifier`: a trained head that classifies pairs of raw texts.

On disk it consists of `pair_classifier.json` and `head.safetensors`. Raw text is split by the
tokenizer of the biLM, or by white space if the head was trained on tokenized texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bilm.embedding.sentence_batches import windows
from bilm.errors import CorpusError
from downstream.features.pair_source import PairSource
from downstream.features.texts_to_layers import tokenize
from downstream.heads.class_outputs import Probabilities
from downstream.heads.pair_model import PairDescription
from downstream.predictors.predictor import WINDOW_WORDS, WordPredictor
from downstream.texts.pairs import distinct_texts
from downstream.training.fit import predict_probabilities


class PairClassifier(WordPredictor[PairDescription]):
    """A classifier of pairs of raw texts."""

    @classmethod
    def _read_description(cls, directory: Path) -> PairDescription:
        return PairDescription.read(directory)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, in the order of the columns of `predict_proba`."""
        return self.description.classes

    def predict(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Return the most probable class of each pair of texts."""
        return [self.classes[i] for i in self.predict_proba(pairs).argmax(axis=1)]

    def predict_proba(self, pairs: Sequence[tuple[str, str]]) -> Probabilities:
        """Return the probability of each class (pairs, classes), in the order of `classes`.

        A text that occurs in several pairs is run through the biLM once.
        """
        parts = list(self._probabilities(_checked(pairs)))
        return np.concatenate(parts) if parts else np.empty((0, len(self.classes)), np.float32)

    def _probabilities(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Probabilities]:
        """Yield the probabilities of windows of pairs, which bound the memory for the layers."""
        embedder = self._inputs.embedder
        pretrained = None if embedder is None else embedder.pretrained
        texts, first, second = distinct_texts(pairs)
        words = tokenize(pretrained, texts, self.description.reading)
        joined = [words[i] + words[k] for i, k in zip(first, second, strict=True)]
        done = 0
        for window in windows(joined, WINDOW_WORDS):
            part = slice(done, done + len(window))
            done = part.stop
            used, places = np.unique([first[part], second[part]], return_inverse=True)
            source = self._read([words[i] for i in used])
            yield predict_probabilities(
                self._model, PairSource(source, *places.reshape(2, -1).astype(np.int64))
            )


def _checked(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Reject anything but pairs of texts that are not empty."""
    result = []
    for i, pair in enumerate(pairs):
        place = f"pair {i + 1} of {len(pairs)}"
        if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(t, str) for t in pair):
            raise TypeError(f"{place} is {pair!r:.60}; expected two texts")
        if not pair[0].strip() or not pair[1].strip():
            raise CorpusError(f"{place} has an empty text; remove it")
        result.append((pair[0], pair[1]))
    return result
