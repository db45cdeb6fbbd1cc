"""Models and sentences for the tests of `Elmo` and `Scorer`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bilm.embedding.elmo import Elmo
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import WhitespaceTokenizer
from bilm.text.vocabulary import Vocabulary
from tests.conftest import GOLDEN, tiny_model_config

SENTENCES = [
    ["the", "bank", "floods", "."],
    ["hello"],
    [],
    ["the", "river", "and", "the", "bank", "lend", "money", "."],
    ["unheard", "bank", "!"],
]
VOCABULARY = Vocabulary(
    ["</S>", "<S>", "<UNK>", "the", ".", "bank", "river", "and", "lend", "money", "hello", "floods"]
)


def golden() -> PretrainedBiLm:
    """Return the model in `tests/golden`, which has no softmax."""
    return PretrainedBiLm.from_published(GOLDEN / "options.json", GOLDEN / "weights.hdf5")


def tiny(seed: int = 0, **changes: Any) -> PretrainedBiLm:
    """Return a small random model with a softmax and a tokenizer."""
    torch.manual_seed(seed)
    model = BiLm(tiny_model_config(**changes), len(VOCABULARY)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2.0)  # outputs that depend on the context
        assert model.softmax is not None
        model.softmax.bias.normal_()
    return PretrainedBiLm(model, VOCABULARY, WhitespaceTokenizer())


class Tagger(nn.Module):
    """A user's model: `Elmo` in front of an LSTM."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.elmo = Elmo(tiny(), dropout=0.0, **options)
        torch.manual_seed(3)
        self.lstm = nn.LSTM(self.elmo.dim, 5, batch_first=True)

    def forward(self, sentences: Any) -> Tensor:
        (words,), mask = self.elmo(sentences)
        hidden: Tensor = self.lstm(words)[0]
        return hidden.masked_fill(~mask.unsqueeze(-1), 0.0)  # (sentences, words, 5)
