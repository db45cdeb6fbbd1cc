"""`TextClassifier`: a trained head and its frozen biLM, from raw text to a class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from downstream.features.texts_to_layers import pool_words, stream_words, tokenize
from downstream.heads.text_model import TextNetwork
from downstream.predictors.inputs import listed
from downstream.predictors.predictor import AnyText, checked_content
from downstream.predictors.texts import Layers, TextPredictor
from downstream.settings.progress import Progress
from downstream.training.fit import predict_probabilities

MAX_EFFECT_WORDS = 100  # in a text; time and memory grow with the square


class ExplainedText(NamedTuple):
    """The words of a text, the probability of each class, and how much each word matters.

    `weights` is the attention to each word, or None for a head without attention. `effects` is the
    probability of the predicted class minus its probability without the vectors of the word; None
    if it was not computed.
    """

    words: list[str]
    probabilities: list[float]
    weights: list[float] | None
    effects: list[float] | None


class TextClassifier(TextPredictor):
    """A classifier of raw texts."""

    target = "class"

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.description.classes

    def predict(self, texts: Iterable[str]) -> list[str]:
        """Return the most probable class of each text."""
        return [self.classes[i] for i in self.predict_proba(texts).argmax(axis=1)]

    def predict_proba(
        self, texts: Iterable[str], progress: bool | None = False
    ) -> npt.NDArray[np.float32]:
        """Return the probability of each class (texts, classes), in the order of `classes`.

        A progress bar is shown if `progress` is True, or if it is None and stderr is a terminal.
        """
        parts = list(self._decoded(texts, Progress("classifying", progress)))
        return np.concatenate(parts) if parts else np.empty((0, len(self.classes)), np.float32)

    def explain(self, texts: Iterable[AnyText], effects: bool = False) -> list[ExplainedText]:
        """Classify texts, and return how much each word matters.

        A text that is a list of words is not tokenized.

        `effects` computes the effect of each word of texts with 2 to `MAX_EFFECT_WORDS` words: the
        head reads the text once without each of its words, whose vectors in context do not change.
        """
        given = listed(texts, "text")
        contents = [
            checked_content(text, f"text {i + 1} of {len(given)}") for i, text in enumerate(given)
        ]
        words = tokenize(self._embedder.pretrained, contents, self.description.reading)
        layers = list(self._layers(words))
        probabilities = self._outputs(words, layers)
        explained = []
        for own, own_layers, shares in zip(words, layers, probabilities, strict=True):
            changes = None
            if effects and 1 < len(own) <= MAX_EFFECT_WORDS:
                changes = self._effects(own, shares)
            weights = self._attention(own, own_layers)
            explained.append(ExplainedText(own, shares.tolist(), weights, changes))
        return explained

    def _attention(self, words: list[str], layers: Layers) -> list[float] | None:
        source = self._source([words], [layers])
        assert isinstance(self._model, TextNetwork)
        with torch.inference_mode():
            batch = source.batch(np.zeros(1, np.int64)).to(self._embedder.device)
            weights = self._model.word_weights(batch)
        return None if weights is None else weights[0].cpu().tolist()

    def _effects(self, words: list[str], probabilities: npt.NDArray[np.float32]) -> list[float]:
        (layers,) = stream_words(self._embedder, [words], self.description.max_words)
        shorter = [np.delete(layers, i, axis=0) for i in range(len(words))]
        if self.description.head.mode != "words":
            shorter = [pool_words(own) for own in shorter]
        others = [words[:i] + words[i + 1 :] for i in range(len(words))]
        label = int(probabilities.argmax())
        without = predict_probabilities(self._model, self._source(others, shorter))[:, label]
        effects: list[float] = (probabilities[label] - without).tolist()
        return effects
