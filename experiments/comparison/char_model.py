"""flair's character LM and its trainer, with a record of each evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch


def new_model(settings: Any, alphabet: Sequence[str]) -> Any:
    """Return a `flair.models.LanguageModel` with random weights."""
    from flair.data import Dictionary
    from flair.models import LanguageModel

    torch.manual_seed(settings.seed)
    dictionary = Dictionary(add_unk=True)
    for character in alphabet:
        dictionary.add_item(character)
    return LanguageModel(
        dictionary,
        is_forward_lm=settings.direction == "forward",
        hidden_size=settings.hidden_dim,
        nlayers=1,
        dropout=settings.dropout,
    )


def timed_trainer(
    model: Any, text: Path, settings: Any, record: Callable[[int, float], object]
) -> Any:
    """Return flair's trainer; `record` gets the number of parts read and the held-out loss."""
    from flair.trainers.language_model_trainer import LanguageModelTrainer, TextCorpus

    class Trainer(LanguageModelTrainer):
        """flair's trainer, which reports each evaluation after a part of the text."""

        evaluations = 0

        def evaluate(self, *arguments: Any, **named: Any) -> float:
            loss = float(super().evaluate(*arguments, **named))
            self.evaluations += 1
            if self.evaluations <= len(self.corpus.train):  # flair evaluates once more at the end
                record(self.evaluations, loss)
            return loss

    corpus = TextCorpus(text, model.dictionary, model.is_forward_lm, character_level=True)
    optimizer = torch.optim.SGD if settings.optimizer == "sgd" else torch.optim.AdamW
    return Trainer(model, corpus, optimizer=optimizer)
