"""`TextClassifier`: a trained head with the frozen biLM under it, from raw text to a class.

On disk it is `classifier.json` and `head.safetensors`. The biLM and the word vectors stay where
they are: their paths and digests are recorded, and others are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file
from tqdm import tqdm

from bilm.atomic import write_text
from bilm.embedder import Embedder
from bilm.errors import CheckpointError, CorpusError
from bilm.initial_weights import load_source
from bilm.regular_files import open_regular
from bilm.sections import Section, parse_section
from bilm.strict_json import read_json
from bilm.tensor_files import save_tensors
from downstream.features import (
    Batch,
    Ids,
    pool_vectors,
    pooled_batch,
    poolings_of,
    stored_precision,
    word_batch,
)
from downstream.heads import TextModel
from downstream.settings import MIX, HeadSettings, MixSettings
from downstream.stores import Layers, embed_texts, model_digest, pool, tokenize, windows_of
from downstream.training import predict_probabilities
from downstream.vectors import Table, WordVectors, vectors_digest

CLASSIFIER_FILE = "classifier.json"
HEAD_FILE = "head.safetensors"


class FileRecord(Section):
    """A thing beside the classifier: where it was, and what it was."""

    path: str
    digest: str


class Description(Section):
    """What classifier.json holds."""

    format: Literal["bilm-classifier"]
    version: Literal[1]
    bilm: FileRecord
    vectors: FileRecord | None
    vector_dim: int
    classes: tuple[str, ...]
    mix_kind: str
    mix: MixSettings
    head: HeadSettings
    num_layers: int
    dim: int
    tokenized: bool
    max_words: Annotated[int, Field(ge=1)]
    seed: Annotated[int, Field(ge=0)]


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
        embedder = Embedder(load_source(bilm_path))
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


class _Window:
    """Texts in memory, in the precision that a store would have kept."""

    def __init__(
        self, layers: list[Layers], vectors: list[Table] | None, head: HeadSettings
    ) -> None:
        self._layers = layers
        self._vectors = vectors
        self._head = head
        self.lengths: Ids = np.array([len(array) for array in layers])

    def __len__(self) -> int:
        return len(self._layers)

    def batch(self, indices: Ids) -> Batch:
        layers = [self._layers[i] for i in indices]
        vectors = None if self._vectors is None else [self._vectors[i] for i in indices]
        if self._head.mode == "words":
            return word_batch([stored_precision(array) for array in layers], vectors)
        return pooled_batch(
            np.stack([pool(array) for array in layers]),
            None if vectors is None else np.stack([pool_vectors(table) for table in vectors]),
            poolings_of(self._head.kind),
        )


def make_model(description: Description) -> TextModel:
    """The mixes and head described, with fresh weights."""
    return TextModel(
        description.mix_kind,
        description.mix,
        description.head,
        num_layers=description.num_layers,
        dim=description.dim,
        vector_dim=description.vector_dim,
        num_classes=len(description.classes),
        seed=description.seed,
    )


def save_classifier(description: Description, model: TextModel, directory: Path) -> None:
    """Write the two files of a classifier into an existing directory."""
    tensors = {key: value.contiguous() for key, value in model.state_dict().items()}
    save_tensors(tensors, directory / HEAD_FILE)
    tree = json.loads(description.model_dump_json())
    write_text(directory / CLASSIFIER_FILE, json.dumps(tree, indent=2) + "\n")


def _check_same(what: str, path: Path, found: str, expected: str, directory: Path) -> None:
    if found != expected:
        raise CheckpointError(
            f"{path} is not the {what} that {directory} was trained with (digest {found[:12]}, "
            f"not {expected[:12]}); give that one, or train the head again on this"
        )


def _check_widths(
    description: Description, embedder: Embedder, vectors: WordVectors | None, path: Path
) -> None:
    """What the classifier says of its inputs must be so, before a head is made for them."""
    vector_dim = 0 if vectors is None else vectors.dim
    for name, found in (
        ("num_layers", embedder.num_layers),
        ("dim", embedder.dim),
        ("vector_dim", vector_dim),
    ):
        if getattr(description, name) != found:
            raise CheckpointError(
                f"{path}: {name} is {getattr(description, name)}, but it is {found} by the biLM "
                "and the word vectors; train the head again"
            )
    if not MIX.fullmatch(description.mix_kind):
        raise CheckpointError(f"{path}: {description.mix_kind!r:.60} is no mix")


def _head(description: Description, path: Path) -> TextModel:
    """The head with its weights; memory for it is taken once the file is seen to hold them."""
    open_regular(path, CheckpointError).close()
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as e:
        raise CheckpointError(f"cannot read the head {path}: {e}") from None
    try:
        with torch.device("meta"):
            shapes = make_model(description).state_dict()
    except (RuntimeError, OverflowError) as e:
        raise CheckpointError(f"{path.parent / CLASSIFIER_FILE}: no such head: {e}") from None
    wanted = {key: (tuple(value.shape), value.dtype) for key, value in shapes.items()}
    found = {key: (tuple(value.shape), value.dtype) for key, value in tensors.items()}
    if wanted != found:
        odd = sorted(key for key in wanted.keys() | found if wanted.get(key) != found.get(key))
        raise CheckpointError(f"{path} does not fit {CLASSIFIER_FILE} in {', '.join(odd[:5])}")
    model = make_model(description)
    model.load_state_dict(tensors)
    return model
