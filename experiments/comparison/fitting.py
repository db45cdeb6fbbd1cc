"""Train a head: AdamW, early stopping on the validation score, the same grid for every system.

A round is a fixed number of steps, so that a head on few labels gets as many steps as one on all.
The settings of the grid are compared by their validation score with the first seed.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.comparison.heads import HIDDEN_DIM, Head, Moments

Ids = npt.NDArray[np.int64]

ROUND_STEPS = 150

MAX_ROUNDS = 25

PATIENCE = 2  # rounds without a better validation score

WEIGHT_DECAY = 0.01


@dataclass(frozen=True)
class Choice:
    """A point of the grid."""

    learning_rate: float
    dropout: float


POOLED_GRID = (Choice(5e-4, 0.3), Choice(2e-3, 0.3))

WORD_GRID = (Choice(1e-3, 0.1), Choice(5e-3, 0.1))

POOLED_ROWS, WORD_ROWS = 128, 512  # of a batch


@dataclass(frozen=True)
class Split:
    """Features (rows, layers, dim), the class of each row, and the score of predicted classes."""

    features: Tensor
    classes: Ids
    score: Callable[[Ids], float]


@dataclass(frozen=True)
class Fitted:
    """A trained head and its best validation score."""

    head: Head
    validation: float
    rounds: int


@dataclass(frozen=True)
class Problem:
    """A task with the features of one system."""

    splits: dict[str, Split]
    num_classes: int
    is_pooled: bool

    @property
    def grid(self) -> tuple[Choice, ...]:
        """The settings to compare."""
        return POOLED_GRID if self.is_pooled else WORD_GRID


def fit(problem: Problem, places: Ids, choice: Choice, seed: int) -> Fitted:
    """Train a head on some rows of the training features; keep its best round."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    train, validation = problem.splits["train"], problem.splits["validation"]
    hidden_dim = HIDDEN_DIM if problem.is_pooled else 0
    moments = Moments.of(train.features, places)
    head = Head(moments, problem.num_classes, hidden_dim, choice.dropout)
    optimizer = torch.optim.AdamW(
        head.parameters(), lr=choice.learning_rate, weight_decay=WEIGHT_DECAY
    )
    batches = _batches(places, POOLED_ROWS if problem.is_pooled else WORD_ROWS, generator)
    best, best_round, state = -1.0, 0, head.state_dict()
    for number in range(1, MAX_ROUNDS + 1):
        head.train()
        for batch in itertools.islice(batches, ROUND_STEPS):
            rows = torch.from_numpy(batch)
            classes = torch.from_numpy(train.classes[batch])
            loss = F.cross_entropy(head(train.features[rows]), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        score = validation.score(head.predict(validation.features))
        if score > best:
            best, best_round, state = score, number, copy.deepcopy(head.state_dict())
        elif number - best_round >= PATIENCE:
            break
    head.load_state_dict(state)
    return Fitted(head, best, best_round)


def fit_share(
    problem: Problem, places_of: Callable[[int], Ids], num_seeds: int, with_test: bool
) -> dict[str, Any]:
    """Choose from the grid with seed 0, train with every seed, and score.

    `places_of` returns the training rows of a seed.
    """
    trials = [(choice, fit(problem, places_of(0), choice, 0)) for choice in problem.grid]
    chosen, first = max(trials, key=lambda trial: trial[1].validation)
    fitted = [first]
    fitted += [fit(problem, places_of(seed), chosen, seed) for seed in range(1, num_seeds)]
    result: dict[str, Any] = {
        "grid": [{**asdict(c), "validation": f.validation} for c, f in trials],
        "chosen": asdict(chosen),
        "validation": [f.validation for f in fitted],
        "rounds": [f.rounds for f in fitted],
        "shares": [f.head.shares() for f in fitted],
    }
    if with_test:
        test = problem.splits["test"]
        result["test"] = [test.score(f.head.predict(test.features)) for f in fitted]
    return result


def _batches(places: Ids, size: int, generator: np.random.Generator) -> Any:
    """Yield batches of rows without end; every row is drawn once per epoch."""
    while True:
        order = generator.permutation(places)
        for start in range(0, len(order), size):
            yield np.sort(order[start : start + size])
