"""Predictors of whole texts: a trained head and its frozen biLM, from raw text to predictions.

On disk a predictor consists of `classifier.json` and `head.safetensors`. The biLM and the word
vectors are not copied: their paths and digests are recorded, and other files are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from bilm.embedding.embedder import Embedder
from bilm.embedding.sentence_batches import windows
from bilm.errors import CheckpointError, CorpusError
from bilm.model.precision import Precision
from downstream.features.batches import PooledSource, Source, WordTexts, pool_vectors
from downstream.features.texts_to_layers import pooled_layers, stream_words, tokenize
from downstream.features.word_vectors import WordVectors
from downstream.heads.head import Predictions
from downstream.heads.saved_head import Description, load_model
from downstream.heads.text_model import TextModel
from downstream.heads.text_targets import LabelSets
from downstream.predictors.loading import Places, open_inputs
from downstream.settings.progress import Progress
from downstream.settings.sections import TargetKind
from downstream.training.fit import predict

# The classes that read the heads of each target.
_PREDICTORS: dict[TargetKind, str] = {
    "class": "TextClassifier",
    "multilabel": "TextLabeler",
    "regression": "TextRegressor",
}


class TextPredictor:
    """The base class of predictors of raw texts."""

    target: ClassVar[TargetKind]

    def __init__(
        self,
        description: Description,
        model: TextModel,
        embedder: Embedder,
        vectors: WordVectors | None,
    ) -> None:
        self.description = description
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
    ) -> Self:
        """Read a trained head.

        Args:
            directory: a report of `downstream.classify`.
            model: the path of the biLM, if it has moved.
            vectors: the path of the word vectors, if they have moved.
            device: such as "cpu" or "cuda:1"; by default, the accelerator if there is one, else the
                CPU. It need not be the device that the head was trained on.
            precision: "float32", "tf32" or "bfloat16" for the matrix products of the biLM.
        """
        directory = Path(directory)
        description = Description.read(directory)
        if description.target.kind != cls.target:
            raise CheckpointError(
                f"{directory} contains a head for --target {description.target.kind}; use "
                f"downstream.{_PREDICTORS[description.target.kind]}"
            )
        places = Places(model, vectors, device, precision)
        opened = open_inputs(description, directory, places)
        assert opened.embedder is not None  # a head for texts has a biLM
        weights = load_model(description, directory)
        return cls(description, weights, opened.embedder, opened.vectors)

    def _decoded(self, texts: Sequence[str], progress: Progress) -> Iterator[Predictions]:
        """Yield the predictions of the head for windows of texts."""
        if isinstance(texts, str):
            raise TypeError("predict takes a list of texts; for one text, pass [text]")
        for i, text in enumerate(texts):
            if not text.strip():
                raise CorpusError(f"text {i + 1} of {len(texts)} is empty; remove it")
        words = tokenize(self._embedder.pretrained, texts, self.description.reading)
        with progress.bar("texts", total=len(texts)) as bar:
            # Texts are processed in windows, which bounds the memory for the layers.
            for window in windows(words, self._embedder.limits.window_words):
                yield predict(self._model, self._source(window))
                bar.update(len(window))

    def _source(self, texts: Sequence[list[str]]) -> Source:
        """Return the features of tokenized texts."""
        head, max_words = self.description.head, self.description.max_words
        vectors = None
        if self._vectors is not None:
            vectors = [self._vectors.look_up(words, head.unknown) for words in texts]
        if head.mode == "words":
            return WordTexts(list(stream_words(self._embedder, texts, max_words)), vectors)
        pooled = None if vectors is None else pool_vectors(vectors)
        return PooledSource(pooled_layers(self._embedder, texts, max_words), head.kind, pooled)


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

    def predict(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the labels of each text, which may be none."""
        chosen = self.predict_sets(texts)["chosen"]
        return [[name for name, c in zip(self.labels, row, strict=True) if c] for row in chosen]

    def predict_proba(
        self, texts: Sequence[str], progress: bool | None = False
    ) -> npt.NDArray[np.float32]:
        """Return the probability of each label (texts, labels), in the order of `labels`."""
        probabilities: npt.NDArray[np.float32] = self.predict_sets(texts, progress)["probability"]
        return probabilities

    def predict_sets(self, texts: Sequence[str], progress: bool | None = False) -> LabelSets:
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
        self, texts: Sequence[str], progress: bool | None = False
    ) -> npt.NDArray[np.float32]:
        """Return the predicted number of each text.

        A progress bar is shown if `progress` is True, or if it is None and stderr is a terminal.
        """
        parts = list(self._decoded(texts, Progress("predicting", progress)))
        return np.concatenate(parts) if parts else np.empty(0, np.float32)
