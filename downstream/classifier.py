"""`TextClassifier`: a trained head with the frozen biLM under it, from raw text to a class.

On disk it is `classifier.json` and `head.safetensors`. The biLM and the word vectors stay where
they are: their paths and digests are recorded, and others are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError, CorpusError
from bilm.files.sections import parse_section
from bilm.files.strict_json import read_json
from bilm.pretrained.digests import model_digest
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.features.batches import (
    _Window,
)
from downstream.features.texts_to_layers import embed_texts, tokenize, windows_of
from downstream.features.word_vectors import Table, WordVectors, vectors_digest
from downstream.heads.saved_head import (
    CLASSIFIER_FILE,
    HEAD_FILE,
    Description,
    _check_same,
    _check_widths,
    _head,
)
from downstream.heads.text_model import TextModel
from downstream.training.fit import predict_probabilities


class TextClassifier:
    """Raw texts to classes, and the probability of each."""

    def __init__(
        self,
        description: Description,
        model: TextModel,
        embedder: Embedder,
        vectors: WordVectors | None,
    ) -> None:
        self.description = description
        self.classes = description.classes
        self._model = model.eval()
        self._embedder = embedder
        self._vectors = vectors

    @classmethod
    def from_pretrained(
        cls,
        directory: Path | str,
        *,
        model: Path | str | None = None,
        vectors: Path | str | None = None,
    ) -> TextClassifier:
        """Read a classifier; `model` and `vectors` say where biLM and word vectors are now."""
        directory = Path(directory)
        path = directory / CLASSIFIER_FILE
        description = parse_section(
            Description, read_json(path, CheckpointError), str(path), CheckpointError
        )
        bilm_path = Path(model) if model is not None else Path(description.bilm.path)
        if not bilm_path.is_dir():
            raise CheckpointError(
                f"the biLM of {directory} is not at {bilm_path}; say where it is (--model)"
            )
        embedder = Embedder(PretrainedBiLm.open(bilm_path))
        found = model_digest(embedder.pretrained)
        _check_same("biLM", bilm_path, found, description.bilm.digest, directory)
        table = None
        if description.vectors is not None:
            vectors_path = Path(vectors) if vectors is not None else Path(description.vectors.path)
            found = vectors_digest(vectors_path)
            expected = description.vectors.digest
            _check_same("file of word vectors", vectors_path, found, expected, directory)
            table = WordVectors.read(vectors_path)
        _check_widths(description, embedder, table, path)
        head = _head(description, directory / HEAD_FILE)
        return cls(description, head, embedder, table)

    def predict(self, texts: Sequence[str]) -> list[str]:
        """The likeliest class of each text."""
        return [self.classes[i] for i in self.predict_proba(texts).argmax(axis=1)]

    def predict_proba(
        self, texts: Sequence[str], progress: bool | None = False
    ) -> npt.NDArray[np.float32]:
        """The probability of each class (texts, classes), in the order of `classes`.

        `progress` shows a bar: True always, None on a terminal only.
        """
        if isinstance(texts, str):
            raise TypeError("predict takes a list of texts; for one text, pass [text]")
        parts = list(self._probabilities(texts, progress))
        return np.concatenate(parts) if parts else np.empty((0, len(self.classes)), np.float32)

    def _probabilities(
        self, texts: Sequence[str], progress: bool | None
    ) -> Iterator[npt.NDArray[np.float32]]:
        for i, text in enumerate(texts):
            if not text.strip():
                raise CorpusError(f"text {i + 1} of {len(texts)} is empty")
        about = self.description
        words = tokenize(self._embedder.pretrained, texts, about.tokenized, about.max_words)
        disable = None if progress is None else not progress
        with tqdm(total=len(texts), desc="classifying", unit=" texts", disable=disable) as bar:
            for window in windows_of(words):
                layers = embed_texts(self._embedder, window)
                source = _Window(layers, self._vectors_of(window), about.head)
                yield predict_probabilities(self._model, source)
                bar.update(len(window))

    def _vectors_of(self, texts: Sequence[list[str]]) -> list[Table] | None:
        if self._vectors is None:
            return None
        return [self._vectors.look_up(words, self.description.head.unknown) for words in texts]
