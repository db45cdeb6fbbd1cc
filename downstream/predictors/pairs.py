"""`PairClassifier`: a trained head that classifies pairs of raw texts.

On disk it consists of `pair_classifier.json` and `head.safetensors`. Raw text is split by the
tokenizer of the biLM, or by white space if the head was trained on tokenized texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bilm.embedding.sentence_batches import windows
from downstream.features.pair_source import PairSource
from downstream.features.texts_to_layers import tokenize
from downstream.heads.class_outputs import Probabilities
from downstream.heads.pair_model import PairDescription
from downstream.predictors.inputs import checked_pairs
from downstream.predictors.predictor import WINDOW_WORDS, WordPredictor
from downstream.settings.pairs import PAIR_FILE
from downstream.texts.pairs import distinct_texts
from downstream.training.fit import predict_probabilities

_NAMES = ("first text", "second text")


class PairClassifier(WordPredictor[PairDescription]):
    """A classifier of pairs of raw texts."""

    _file = PAIR_FILE

    @classmethod
    def _read_description(cls, directory: Path) -> PairDescription:
        return PairDescription.read(directory)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, in the order of the columns of `predict_proba`."""
        return self.description.classes

    def predict(self, pairs: Iterable[tuple[str, str]]) -> list[str]:
        """Return the most probable class of each pair of texts."""
        return [self.classes[i] for i in self.predict_proba(pairs).argmax(axis=1)]

    def predict_proba(self, pairs: Iterable[tuple[str, str]]) -> Probabilities:
        """Return the probability of each class (pairs, classes), in the order of `classes`.

        A text that occurs in several pairs is run through the biLM once.
        """
        parts = list(self._probabilities(checked_pairs(pairs, _NAMES)))
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
