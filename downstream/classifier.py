"""`TextClassifier`: a trained head and its frozen biLM, from raw text to a class.

On disk it consists of `classifier.json` and `head.safetensors`. The biLM and the word vectors are
not copied: their paths and digests are recorded, and other files are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from bilm.embedding.embedder import Embedder
from bilm.embedding.sentence_batches import windows
from bilm.errors import CorpusError
from bilm.model.precision import Precision
from downstream.features.batches import PooledSource, Source, WordTexts, pool_vectors
from downstream.features.texts_to_layers import (
    pool_words,
    stream_pooled,
    stream_words,
    tokenize,
)
from downstream.features.word_vectors import WordVectors
from downstream.heads.saved_head import Description, load_model
from downstream.heads.text_model import TextModel
from downstream.predictors.loading import Places, open_inputs
from downstream.settings.progress import Progress
from downstream.training.fit import predict_probabilities

MAX_EFFECT_WORDS = 100  # in a text; time and memory grow with the square


Layers = npt.NDArray[np.float32]  # of one text: (words or poolings, layers, dim)


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


class TextClassifier:
    """A classifier of raw texts."""

    def __init__(
        self,
        description: Description,
        model: TextModel,
        embedder: Embedder,
        vectors: WordVectors | None,
    ) -> None:
        self.description = description
        self.classes = description.classes
        self._model = model.to(embedder.device).eval()
        self._embedder = embedder
        self._vectors = vectors

    @classmethod
    def from_pretrained(
        cls,
        directory: Path | str,
        *,
        model: Path | str | None = None,
        vectors: Path | str | None = None,
        device: str | None = None,
        precision: Precision = "float32",
    ) -> TextClassifier:
        """Read a classifier.

        Args:
            directory: a report of `downstream.classify`.
            model: the path of the biLM, if it has moved.
            vectors: the path of the word vectors, if they have moved.
            device: such as "cpu" or "cuda:1"; by default, the accelerator if there is one, else the
                CPU. It need not be the device that the classifier was trained on.
            precision: "float32", "tf32" or "bfloat16" for the matrix products of the biLM.
        """
        return cls.open(directory, Places(model, vectors, device, precision))

    @classmethod
    def open(cls, directory: Path | str, places: Places) -> TextClassifier:
        """Read a classifier, whose biLM and word vectors are at `places`."""
        directory = Path(directory)
        description = Description.read(directory)
        opened = open_inputs(description, directory, places)
        assert opened.embedder is not None  # a classifier has a biLM
        weights = load_model(description, directory)
        return cls(description, weights, opened.embedder, opened.vectors)

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Return the most probable class of each text."""
        return [self.classes[i] for i in self.predict_proba(texts).argmax(axis=1)]

    def predict_proba(
        self, texts: Sequence[str], progress: bool | None = False
    ) -> npt.NDArray[np.float32]:
        """Return the probability of each class (texts, classes), in the order of `classes`.

        A progress bar is shown if `progress` is True, or if it is None and stderr is a terminal.
        """
        if isinstance(texts, str):
            raise TypeError("predict takes a list of texts; for one text, pass [text]")
        parts = list(self._probabilities(texts, Progress("classifying", progress)))
        return np.concatenate(parts) if parts else np.empty((0, len(self.classes)), np.float32)

    def explain(self, texts: Sequence[str], effects: bool = False) -> list[ExplainedText]:
        """Classify texts, and return how much each word matters.

        `effects` computes the effect of each word of texts with 2 to `MAX_EFFECT_WORDS` words: the
        head reads the text once without each of its words, whose vectors in context do not change.
        """
        words = tokenize(self._embedder.pretrained, texts, self.description.reading)
        layers = list(self._layers(words))
        probabilities = self._classify(words, layers)
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
        with torch.inference_mode():
            batch = source.batch(np.zeros(1, np.int64)).to(self._embedder.device)
            weights = self._model.word_weights(batch)
        return None if weights is None else weights[0].cpu().tolist()

    def _effects(self, words: list[str], probabilities: npt.NDArray[np.float32]) -> list[float]:
        (layers,) = stream_words(self._embedder, [words])
        shorter = [np.delete(layers, i, axis=0) for i in range(len(words))]
        if self.description.head.mode != "words":
            shorter = [pool_words(own) for own in shorter]
        others = [words[:i] + words[i + 1 :] for i in range(len(words))]
        label = int(probabilities.argmax())
        without = predict_probabilities(self._model, self._source(others, shorter))[:, label]
        effects: list[float] = (probabilities[label] - without).tolist()
        return effects

    def _probabilities(
        self, texts: Sequence[str], progress: Progress
    ) -> Iterator[npt.NDArray[np.float32]]:
        for i, text in enumerate(texts):
            if not text.strip():
                raise CorpusError(f"text {i + 1} of {len(texts)} is empty; remove it")
        words = tokenize(self._embedder.pretrained, texts, self.description.reading)
        with progress.bar("texts", total=len(texts)) as bar:
            # Texts are processed in windows, which bounds the memory for the layers.
            for window in windows(words, self._embedder.limits.window_words):
                yield self._classify(window, list(self._layers(window)))
                bar.update(len(window))

    def _layers(self, texts: Sequence[list[str]]) -> Iterator[Layers]:
        """Yield what the head reads of the biLM: the layers of each text by word, or pooled."""
        read = stream_words if self.description.head.mode == "words" else stream_pooled
        return read(self._embedder, texts)

    def _classify(
        self, texts: Sequence[list[str]], layers: Sequence[Layers]
    ) -> npt.NDArray[np.float32]:
        """Return the probability of each class (texts, classes)."""
        source = self._source(texts, layers)
        if self._embedder.limits.batch_invariant:
            return predict_probabilities(self._model, source, batch_size=1)
        return predict_probabilities(self._model, source)

    def _source(self, texts: Sequence[list[str]], layers: Sequence[Layers]) -> Source:
        """Return the features of tokenized texts."""
        head = self.description.head
        vectors = None
        if self._vectors is not None:
            vectors = [self._vectors.look_up(words, head.unknown) for words in texts]
        if head.mode == "words":
            return WordTexts(layers, vectors)
        pooled = None if vectors is None else pool_vectors(vectors)
        return PooledSource(np.stack(layers), head.kind, pooled)
