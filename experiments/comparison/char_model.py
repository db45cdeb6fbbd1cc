"""flair's character LM and its trainer, with a record of each evaluation."""

from __future__ import annotations

import random
import time
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
    model: Any, text: Path, settings: Any, record: Callable[[int, float, float], object]
) -> Any:
    """Return flair's trainer.

    `record` gets the number of parts read, the held-out loss, and the seconds of its evaluation.
    """
    from flair.trainers.language_model_trainer import LanguageModelTrainer, TextCorpus

    class Trainer(LanguageModelTrainer):  # type: ignore[misc]
        """flair's trainer, which reports each evaluation after a part of the text."""

        evaluations = 0

        def evaluate(self, *arguments: Any, **named: Any) -> float:
            start = time.monotonic()
            loss = float(super().evaluate(*arguments, **named))
            self.evaluations += 1
            if self.evaluations <= len(self.corpus.train):  # flair evaluates once more at the end
                record(self.evaluations, loss, time.monotonic() - start)
            return loss

    random.seed(settings.seed)  # flair changes the case of a few lines
    corpus = TextCorpus(text, model.dictionary, model.is_forward_lm, character_level=True)
    # The AdamW of flair 0.15.1 does not work with torch 2.13.
    return Trainer(model, corpus, optimizer=torch.optim.SGD)
