"""A scikit-learn estimator of pairs of texts: pairs of raw texts in, classes out.

`fit` runs every distinct text through the biLM once and keeps the layers of all words in memory
(2 bytes x layers x dim per word); `python -m downstream.pair` keeps them on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import Tags

from bilm.embedding.embedder import Embedder
from bilm.files.sections import parse_section
from bilm.model.precision import Precision
from downstream.features.batches import FeatureShape
from downstream.features.pair_source import PairSource
from downstream.features.plain_words import WordLayersFile
from downstream.features.word_ranges import WordRanges
from downstream.heads.pair_model import PairDescription
from downstream.heads.saved_head import FileRecord, HeadInputs
from downstream.settings.common import MixSettings
from downstream.settings.pairs import (
    DEFAULT_PAIR_EPOCHS,
    DEFAULT_PAIR_LEARNING_RATE,
    PairHeadSettings,
    PairSettings,
    PairTrainingSettings,
)
from downstream.settings.sections import DEFAULT_MAX_WORDS, DEFAULT_VALIDATION_SHARE
from downstream.tasks.pairs import PairTask, split_pairs
from downstream.texts.estimator_inputs import (
    as_pairs,
    check_mix,
    parameters_of,
    with_python_numbers,
)
from downstream.texts.pairs import distinct_texts
from downstream.training.head_estimator import HeadClassifier, Labels, TargetParts

Pairs = Sequence[Sequence[str]] | npt.NDArray[Any]

_HEAD, _TRAIN = PairHeadSettings(), PairTrainingSettings()


class BiLmPairClassifier(HeadClassifier):
    """A classifier of pairs of raw texts: a frozen biLM, a mix of its layers, and a head.

    The head is that of `downstream.pair` without word vectors, with the same defaults, and is
    trained in the same way. The same `random_state` gives the same result; an integer is the
    `--seed` of `downstream.pair`.

    Args:
        model: the path of a model directory, a run, or a directory of published files.
        mix: "trainable", "frozen", "learned", "average", "top" or "layer:K".
        elmo_at: the place of the mix, "input" of the encoder or "both" its input and its output.
        penalty: lambda in `lambda * ||w||^2`, on the weights of a trainable mix.
        encoder_dim: units per direction of both biLSTMs.
        hidden_dim: width of the hidden layer before the output.
        dropout: dropout rate of the inputs of all layers.
        characters: whether the head also reads the characters of the words.
        epochs: the maximum number of epochs.
        learning_rate: the peak; it decays to 0 in the last epoch.
        batch_size: pairs per step; by default that of `downstream.pair`.
        weight_decay: weight decay of the head.
        validation_share: share of the pairs that is used to choose the epoch and not for training;
            pairs with the same first text stay together. With None, or if the pairs cannot be
            divided, all pairs are used for both.
        patience: stop after this many epochs without improvement.
        max_words: longer texts are truncated.
        tokenizer: "whitespace" or "moses", for a model that does not record its tokenizer.
        device: such as "cpu" or "cuda:1"; by default, the GPU if there is one, else the CPU.
        precision: "float32", "tf32" or "bfloat16" for the matrix products of the biLM.
        random_state: determines initial weights, batch order, dropout and the validation pairs.

    Attributes after `fit`: `classes_`, `head_`, `history_` (per epoch), `mix_shares_` (of each
    layer, by place), `n_iter_` (epochs).
    """

    def __init__(
        self,
        model: Path | str | None = None,
        *,
        mix: str = MixSettings().kinds[0],
        elmo_at: str = _HEAD.elmo_at,
        penalty: float = MixSettings().penalty,
        encoder_dim: int = _HEAD.encoder_dim,
        hidden_dim: int = _HEAD.hidden_dim,
        dropout: float = _HEAD.dropout,
        characters: bool = False,
        epochs: int = DEFAULT_PAIR_EPOCHS,
        learning_rate: float = DEFAULT_PAIR_LEARNING_RATE,
        batch_size: int | None = _TRAIN.batch_size,
        weight_decay: float = _TRAIN.weight_decay,
        validation_share: float | None = DEFAULT_VALIDATION_SHARE,
        patience: int = _TRAIN.patience,
        max_words: int = DEFAULT_MAX_WORDS,
        tokenizer: str | None = None,
        device: str | None = None,
        precision: Precision = "float32",
        random_state: int | np.random.RandomState | None = _TRAIN.seed,
    ) -> None:
        self.model = model
        self.mix = mix
        self.elmo_at = elmo_at
        self.penalty = penalty
        self.encoder_dim = encoder_dim
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.characters = characters
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.validation_share = validation_share
        self.patience = patience
        self.max_words = max_words
        self.tokenizer = tokenizer
        self.device = device
        self.precision = precision
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags

    def fit(self, X: Pairs, y: Labels) -> Self:
        """Read the texts once, and train the mix and the head.

        Args:
            X: a list of pairs of texts, or an array or a data frame with two columns.
            y: one label per pair.
        """
        pairs = self._check_texts(X, reset=True)
        labels = self._check_labels(y, pairs)
        embedder = self._check_reading()
        settings = self._settings(self._seed())
        description = self._describe(settings, embedder)
        first, seed = distinct_texts(pairs).first, settings.train.seed
        parts = self._split(len(pairs), lambda share: split_pairs(first, labels, share, seed))
        targets, source = TargetParts(labels, *parts), self._source(pairs, embedder)
        self._train_head(description.build, source, targets, settings, embedder)
        self.mix_shares_ = self.head_.shares()
        return self

    def _check_texts(self, X: Pairs, reset: bool) -> list[tuple[str, str]]:
        """Return `X` as a list of pairs; `reset` is true in `fit`."""
        if reset:
            self.n_features_in_ = 2  # both texts
        return as_pairs(X)

    def _source(self, pairs: list[tuple[str, str]], embedder: Embedder) -> PairSource:
        texts, first, second = distinct_texts(pairs)
        words = self._words(texts, embedder)
        for text, found in zip(texts, words, strict=True):
            if not found:
                raise ValueError(f"the text {text!r:.60} has no words; remove its pairs")
        file = WordLayersFile.computed(words, embedder)
        return PairSource(WordRanges(file, None, self.characters), first, second)

    def _describe(self, settings: PairSettings, embedder: Embedder) -> PairDescription:
        """Return the description of the head, as `downstream.pair` does."""
        classes = tuple(map(str, self.classes_))
        shape = FeatureShape(embedder.num_layers, embedder.dim)
        bilm = FileRecord(path=str(self.model), digest="")
        inputs = HeadInputs(bilm, None, shape, settings.mix.kinds[0], settings.train.seed)
        return PairTask({}, classes, classes, {}).describe(settings, inputs)

    def _settings(self, seed: int) -> PairSettings:
        """Return the parameters as validated settings; no files are read or written."""
        tree = {
            "model": str(self.model),
            "output": "-",
            "data": {"train": "-", "test": "-", "max_words": self.max_words},
            "mix": {"kinds": [self.mix], "penalty": self.penalty},
            "head": {
                "elmo_at": self.elmo_at,
                "encoder_dim": self.encoder_dim,
                "hidden_dim": self.hidden_dim,
                "dropout": self.dropout,
                "characters": self.characters,
            },
            "train": self._training(seed),
        }
        check_mix(self.mix)
        names = parameters_of(tree, {"train.seed": "random_state"})
        owner = type(self).__name__
        return parse_section(PairSettings, with_python_numbers(tree), owner, names=names)
