"""Training of one head on representations that are there already.

AdamW with a learning rate that falls to 0, early stopping on the validation accuracy, the best
weights kept. Same seed, same result: weights, order and dropout follow from it.

Cost: a pooled head takes a second or so an epoch for 70,000 texts; one that reads words, minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from bilm.errors import DivergedError
from downstream.features.batches import Ids, Source
from downstream.heads.mixes import WeightedMix
from downstream.heads.text_model import TextModel
from downstream.settings.sections import Settings

_EVALUATION_TEXTS = 256

_MAX_WARMUP_STEPS = 100

_MAX_GRADIENT_NORM = 5.0

_SORTED_BATCHES = 50  # like lengths are put together among so many batches


@dataclass
class History:
    """What each epoch gave, and which was the best (from 1)."""

    train_loss: list[float] = field(default_factory=list)
    train_accuracy: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    validation_accuracy: list[float] = field(default_factory=list)
    shares: list[dict[str, list[float]]] = field(default_factory=list)
    best_epoch: int = 0


def fit(
    model: TextModel,
    train: Source,
    train_labels: Ids,
    validation: Source,
    validation_labels: Ids,
    settings: Settings,
    seed: int,
    name: str = "head",
    progress: bool | None = None,
) -> History:
    """Train `model` in place; it ends with the weights of its best epoch."""
    torch.manual_seed(seed)
    history = History()
    batch_size = settings.batch_size(len(train))
    steps = math.ceil(len(train) / batch_size)
    step = _stepper(model, settings, steps)
    best: dict[str, Tensor] = {}
    disable = None if progress is None else not progress
    with tqdm(total=settings.epochs * steps, desc=name, unit=" steps", disable=disable) as bar:
        for epoch in range(1, settings.epochs + 1):
            order = _batches(train.lengths, batch_size, (seed, epoch))
            loss, accuracy = _train_epoch(model, train, train_labels, order, step, bar)
            history.train_loss.append(loss)
            history.train_accuracy.append(accuracy)
            _validate(model, validation, validation_labels, history)
            if not math.isfinite(loss + history.validation_loss[-1]):
                raise DivergedError(f"{name}: the loss is not a number; lower --learning-rate")
            bar.set_postfix_str(f"validation {history.validation_accuracy[-1]:.4f}")
            if _is_best(history):
                history.best_epoch = epoch
                best = {key: value.detach().clone() for key, value in model.state_dict().items()}
            elif epoch - history.best_epoch >= settings.train.patience:
                break
    model.load_state_dict(best)
    return history


def predict_probabilities(model: TextModel, source: Source) -> npt.NDArray[np.float32]:
    """The probability of each class (texts, classes), in the order of the source."""
    model.eval()
    result: npt.NDArray[np.float32] | None = None
    order = np.argsort(source.lengths, kind="stable")
    with torch.inference_mode():
        for start in range(0, len(order), _EVALUATION_TEXTS):
            indices = order[start : start + _EVALUATION_TEXTS]
            probabilities = model(source.batch(indices)).softmax(dim=1).numpy()
            if result is None:
                result = np.empty((len(order), probabilities.shape[1]), dtype=np.float32)
            result[indices] = probabilities
    assert result is not None
    return result


def _train_epoch(
    model: TextModel,
    source: Source,
    labels: Ids,
    order: Iterable[Ids],
    step: Callable[[Tensor], None],
    bar: Any,
) -> tuple[float, float]:
    """One pass over the texts; the mean loss (without the penalty) and the accuracy on the way."""
    model.train()
    loss_sum, right = 0.0, 0
    for indices in order:
        wanted = torch.from_numpy(labels[indices])
        scores = model(source.batch(indices))
        loss = F.cross_entropy(scores, wanted)
        step(loss + model.regularization())
        loss_sum += loss.item() * len(indices)
        right += int((scores.argmax(dim=1) == wanted).sum())
        bar.update()
    return loss_sum / len(source), right / len(source)


def _validate(model: TextModel, source: Source, labels: Ids, history: History) -> None:
    probabilities = predict_probabilities(model, source)
    chosen = probabilities[np.arange(len(labels)), labels]
    history.validation_loss.append(float(-np.log(np.maximum(chosen, 1e-12)).mean()))
    history.validation_accuracy.append(float((probabilities.argmax(axis=1) == labels).mean()))
    history.shares.append(model.shares())


def _is_best(history: History) -> bool:
    """Whether the last epoch is; of equal accuracies the lower loss is the better one."""
    figures = list(
        zip(history.validation_accuracy, (-x for x in history.validation_loss), strict=True)
    )
    return all(figures[-1] > figure for figure in figures[:-1])


def _stepper(model: TextModel, settings: Settings, steps: int) -> Callable[[Tensor], None]:
    """What a loss does to the weights, `steps` times an epoch.

    The head decays; the weights and gamma of a mix do not, and learn at a rate of their own.
    """
    weighted = [mix for mix in model.mixes.values() if isinstance(mix, WeightedMix)]
    scalars = [p for mix in weighted for p in mix.parameters() if p.requires_grad]
    scalar_ids = {id(p) for p in scalars}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in scalar_ids]
    groups = [
        {"params": others, "weight_decay": settings.train.weight_decay},
        {"params": scalars, "weight_decay": 0.0, "lr": settings.mix.learning_rate},
    ]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=settings.learning_rate, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, _falling(settings.epochs * steps, min(steps, _MAX_WARMUP_STEPS))
    )

    def step(loss: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _MAX_GRADIENT_NORM)
        optimizer.step()
        schedule.step()

    return step


def _falling(total: int, warmup: int) -> Callable[[int], float]:
    def rate(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return max(0.0, 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup))))

    return rate


def _batches(lengths: Ids, batch_size: int, seed: tuple[int, int]) -> Iterator[Ids]:
    """All texts once, in random batches of like length."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(lengths))
    batches: list[Ids] = []
    for start in range(0, len(order), _SORTED_BATCHES * batch_size):
        pool = order[start : start + _SORTED_BATCHES * batch_size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    if len(batches) > 1 and len(batches[-1]) == 1:  # one text has no variance to standardise by
        batches[-2:] = [np.concatenate(batches[-2:])]
    for i in rng.permutation(len(batches)):
        yield batches[i]
