"""Predictors of whole texts: a trained head and its frozen biLM, from raw text to predictions.

On disk a predictor consists of `classifier.json` and `head.safetensors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bilm.embedding.embedder import Embedder
from bilm.embedding.sentence_batches import windows
from bilm.errors import CheckpointError, CorpusError
from downstream.features.batches import PooledSource, Source, WordTexts, pool_vectors
from downstream.features.texts_to_layers import stream_pooled, stream_words, tokenize
from downstream.heads.head import Predictions
from downstream.heads.saved_head import Description
from downstream.heads.text_targets import LabelSets
from downstream.predictors.inputs import checked_string, listed
from downstream.predictors.predictor import HeadPredictor
from downstream.settings.progress import Progress
from downstream.settings.sections import CLASSIFIER_FILE, TargetKind
from downstream.training.fit import predict

Layers = npt.NDArray[np.float32]  # of one text: (words or poolings, layers, dim)

# The classes that read the heads of each target.
_PREDICTORS: dict[TargetKind, str] = {
    "class": "TextClassifier",
    "multilabel": "TextLabeler",
    "regression": "TextRegressor",
}


class TextPredictor(HeadPredictor[Description]):
    """The base class of predictors of whole texts."""

    _file = CLASSIFIER_FILE
    target: ClassVar[TargetKind]

    @classmethod
    def _read_description(cls, directory: Path) -> Description:
        description = Description.read(directory)
        if description.target.kind != cls.target:
            raise CheckpointError(
                f"{directory} contains a head for --target {description.target.kind}; use "
                f"downstream.{_PREDICTORS[description.target.kind]}"
            )
        return description

    @property
    def _embedder(self) -> Embedder:
        embedder = self._inputs.embedder
        assert embedder is not None  # a head for texts has a biLM
        return embedder

    def _decoded(self, texts: Iterable[str], progress: Progress) -> Iterator[Predictions]:
        """Yield the predictions of the head for windows of texts."""
        given = listed(texts, "text")
        for i, text in enumerate(given):
            name = f"text {i + 1} of {len(given)}"
            if not checked_string(text, name).strip():
                raise CorpusError(f"{name} is empty; remove it")
        words = tokenize(self._embedder.pretrained, given, self.description.reading)
        with progress.bar("texts", total=len(given)) as bar:
            # Texts are processed in windows, which bounds the memory for the layers.
            for window in windows(words, self._embedder.limits.window_words):
                yield self._outputs(window, list(self._layers(window)))
                bar.update(len(window))

    def _layers(self, texts: Sequence[list[str]]) -> Iterator[Layers]:
        """Yield what the head reads of the biLM: the layers of each text by word, or pooled."""
        read = stream_words if self.description.head.mode == "words" else stream_pooled
        return read(self._embedder, texts, self.description.max_words)

    def _outputs(self, texts: Sequence[list[str]], layers: Sequence[Layers]) -> Predictions:
        """Return the predictions of the head for tokenized texts."""
        batch_size = 1 if self._embedder.limits.batch_invariant else None
        return predict(self._model, self._source(texts, layers), batch_size)

    def _source(self, texts: Sequence[list[str]], layers: Sequence[Layers]) -> Source:
        """Return the features of tokenized texts."""
        head, table, vectors = self.description.head, self._inputs.vectors, None
        if table is not None:
            vectors = [table.look_up(words, head.unknown) for words in texts]
        if head.mode == "words":
            return WordTexts(layers, vectors)
        pooled = None if vectors is None else pool_vectors(vectors)
        return PooledSource(np.stack(layers), head.kind, pooled)


class TextLabeler(TextPredictor):
    """A predictor of any number of labels per text."""

    target = "multilabel"

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of all labels."""
        return self.description.classes

    @property
    def threshold(self) -> float:
        """The probability from which on a label is predicted."""
        threshold = self._model.get_buffer("threshold")
        return float(threshold)

    def predict(self, texts: Iterable[str]) -> list[list[str]]:
        """Return the labels of each text, which may be none."""
        chosen = self.predict_sets(texts)["chosen"]
        return [[name for name, c in zip(self.labels, row, strict=True) if c] for row in chosen]

    def predict_proba(
        self, texts: Iterable[str], progress: bool | None = False
    ) -> npt.NDArray[np.float32]:
        """Return the probability of each label (texts, labels), in the order of `labels`."""
        probabilities: npt.NDArray[np.float32] = self.predict_sets(texts, progress)["probability"]
        return probabilities

    def predict_sets(self, texts: Iterable[str], progress: bool | None = False) -> LabelSets:
        """Return an array with the fields `probability` and `chosen`, each (texts, labels).

        A progress bar is shown if `progress` is True, or if it is None and stderr is a terminal.
        """
        parts = list(self._decoded(texts, Progress("labelling", progress)))
        if parts:
            return np.concatenate(parts)
        shape = (len(self.labels),)
        return np.empty(0, [("probability", np.float32, shape), ("chosen", np.bool_, shape)])


class TextRegressor(TextPredictor):
    """A predictor of a number per text."""

    target = "regression"

    def predict(
        self, texts: Iterable[str], progress: bool | None = False
    ) -> npt.NDArray[np.float32]:
        """Return the predicted number of each text.

        A progress bar is shown if `progress` is True, or if it is None and stderr is a terminal.
        """
        parts = list(self._decoded(texts, Progress("predicting", progress)))
        return np.concatenate(parts) if parts else np.empty(0, np.float32)
