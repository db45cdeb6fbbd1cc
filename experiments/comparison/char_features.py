"""Word vectors of flair's character LMs: both states at the boundaries of a word, concatenated.

As in `flair.embeddings.FlairEmbeddings`, the forward state is taken after the space behind a word,
and the backward state after the space in front of it. Sentences of similar length share a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bilm.errors import CheckpointError
from bilm.files.strict_json import read_json
from bilm.pretrained.tensors import load_tensors
from experiments.comparison.char_lms import Settings
from experiments.comparison.char_model import new_model
from experiments.comparison.features import FloatArray, Words

BATCH_CHARACTERS = 16384

CHUNK_CHARACTERS = 512  # flair's default

START, END = "\n", " "


def word_places(words: Words) -> tuple[list[int], list[int]]:
    """Return the places of the states of each word in the padded text of each direction."""
    ends = np.cumsum([len(word) + 1 for word in words])
    text = int(ends[-1]) - 1 if len(words) else 0
    forward = [len(START) + int(end) - 1 for end in ends]
    starts = [0, *(int(end) for end in ends[:-1])]
    backward = [len(START) + text - start for start in starts]
    return forward, backward


class CharFeatures:
    """The states of a forward and a backward character LM; one layer."""

    num_layers = 1

    def __init__(self, forward: Any, backward: Any) -> None:
        self._models = (forward.eval(), backward.eval())
        self.dim = forward.hidden_size + backward.hidden_size
        self.num_parameters = sum(p.numel() for m in self._models for p in m.parameters())

    @classmethod
    def open(cls, directory: Path) -> CharFeatures:
        """Open the models in `forward/` and `backward/`."""
        forward, backward = (_open(directory / name) for name in ("forward", "backward"))
        return cls(forward, backward)

    def words(self, sentences: Sequence[Words]) -> list[FloatArray]:
        texts = [" ".join(words) for words in sentences]
        results: dict[int, FloatArray] = {}
        for batch in _batches([len(text) for text in texts]):
            with torch.inference_mode():
                states = [
                    model.get_representation(
                        [texts[i] for i in batch], START, END, CHUNK_CHARACTERS
                    ).numpy()
                    for model in self._models
                ]  # (characters, texts, dim) per direction
            for row, i in enumerate(batch):
                places = word_places(sentences[i])
                both = [s[place, row] for s, place in zip(states, places, strict=True)]
                results[i] = np.concatenate(both, axis=-1)[None].astype(np.float32)
        return [results[i] for i in range(len(sentences))]


def _open(directory: Path) -> Any:
    tree = read_json(directory / "language_model.json", CheckpointError)
    model = new_model(Settings(**tree["settings"]), tree["alphabet"])
    model.load_state_dict(load_tensors(directory / "weights.safetensors"))
    return model


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * (lengths[i] + 2) > BATCH_CHARACTERS:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
