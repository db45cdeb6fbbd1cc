"""Train one head on precomputed representations.

Uses AdamW with a learning rate that decays to 0, and early stopping on the validation score; the
weights of the best epoch are kept. An epoch usually uses each example once, and several times if
all epochs would otherwise have fewer than `min_steps` steps. The same seed gives the same weights,
batch order and dropout, except that the dropout masks depend on the device.

The head is trained on the device of its weights, in float32. A batch is copied to it once, and
within an epoch the host does not wait for the device.

Cost: about a second per epoch for a pooled head and 70,000 texts, minutes for a head that reads
words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from bilm.errors import DivergedError
from bilm.model.devices import copy_to_device
from bilm.model.precision import precision_context
from downstream.features.batches import Examples, Ids, Source
from downstream.heads.class_outputs import Probabilities
from downstream.heads.head import Evaluation, Head, MixedModel, Predictions
from downstream.settings.common import TrainingPlan
from downstream.settings.progress import Progress
from downstream.settings.sections import DEFAULT_MAX_WORDS

AnyModel = TypeVar("AnyModel", bound=MixedModel)

# The words of a batch in evaluation, including padding: 256 texts of the default maximum length.
_EVALUATION_WORDS = 256 * DEFAULT_MAX_WORDS

_MAX_WARMUP_STEPS = 100

_MAX_GRADIENT_NORM = 5.0

_BATCHES_SORTED_TOGETHER = 50


@dataclass
class History:
    """The results of each epoch, and the number of the best one (from 1)."""

    train_loss: list[float] = field(default_factory=list)
    train_accuracy: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    validation_accuracy: list[float] = field(default_factory=list)
    shares: list[dict[str, list[float]]] = field(default_factory=list)
    best_epoch: int = 0

    def add(self, train: Evaluation, validation: Evaluation) -> None:
        """Append the results of an epoch."""
        self.train_loss.append(train.loss)
        self.train_accuracy.append(train.accuracy)
        self.validation_loss.append(validation.loss)
        self.validation_accuracy.append(validation.accuracy)

    def last_is_best(self) -> bool:
        """Return whether the last epoch is the best; ties are broken by the lower loss."""
        losses = (-loss for loss in self.validation_loss)
        *before, last = zip(self.validation_accuracy, losses, strict=True)
        return all(last > epoch for epoch in before)


def fit(
    model: Head,
    train: Examples,
    validation: Examples,
    settings: TrainingPlan,
    seed: int,
    progress: Progress = Progress("head"),  # noqa: B008
) -> History:
    """Train `model` in place; afterwards it has the weights of its best epoch."""
    torch.manual_seed(seed)
    history = History()
    batch_size = settings.batch_size(len(train.source))
    lengths = train.source.lengths
    max_words = None if train.usual_words is None else batch_size * train.usual_words
    passes = _passes(len(train.source), batch_size, settings)
    steps = passes * math.ceil(len(train.source) / batch_size)
    step = _stepper(model, settings, steps)
    best: dict[str, Tensor] = {}
    with progress.bar("steps", total=settings.epochs * steps) as bar:
        for epoch in range(1, settings.epochs + 1):
            whole = (
                _batches(lengths, batch_size, (seed, number))
                for number in range((epoch - 1) * passes + 1, epoch * passes + 1)
            )
            batches = (
                list(_within_words(batch, lengths, max_words))
                for batch in chain.from_iterable(whole)
            )
            trained = _train_epoch(model, train, batches, step, bar)
            validated = model.evaluate(predict(model, validation), validation.labels)
            history.add(trained, validated)
            history.shares.append(model.shares())
            if not math.isfinite(trained.loss + validated.loss):
                raise DivergedError(
                    f"{progress.label}: the loss is NaN or infinite; lower --learning-rate"
                )
            bar.set_postfix_str(f"validation {validated.accuracy:.4f}")
            if history.last_is_best():
                history.best_epoch = epoch
                best = {key: value.detach().clone() for key, value in model.state_dict().items()}
            elif epoch - history.best_epoch >= settings.train.patience:
                break
    model.load_state_dict(best)
    return history


def _passes(num_examples: int, batch_size: int, settings: TrainingPlan) -> int:
    """Return how often an epoch uses each example, so that all epochs have `min_steps` steps."""
    steps = settings.epochs * math.ceil(num_examples / batch_size)
    return max(1, math.ceil(settings.train.min_steps / steps))


def fit_new(
    build: Callable[[], AnyModel],
    train: Examples,
    validation: Examples,
    settings: TrainingPlan,
    seed: int,
    device: torch.device,
) -> tuple[AnyModel, History]:
    """Build a head with the seed and train it on `device`; return it in host memory.

    Torch's global random state does not change.
    """
    devices = [] if device.type == "cpu" else [torch.empty(0, device=device).get_device()]
    with torch.random.fork_rng(devices, device_type=device.type):
        torch.manual_seed(seed)
        model = build().to(device)
        history = fit(model, train, validation, settings, seed)
    return model.cpu().eval(), history


def predict_probabilities(
    model: Head, source: Source, batch_size: int | None = None
) -> Probabilities:
    """Return the probability of each class (texts, classes), in the order of the source."""
    probabilities: Probabilities = predict(model, source, batch_size)
    return probabilities


def predict(model: Head, examples: Examples | Source, batch_size: int | None = None) -> Predictions:
    """Return the predictions of a head in the order of the examples, with or without targets.

    The last bits of a prediction may depend on the other examples of its batch, whose size is
    `evaluation_texts` of the head by default.
    """
    batch_size = batch_size or model.evaluation_texts
    source = examples.source if isinstance(examples, Examples) else examples
    model.eval()
    device = _device_of(model)
    lengths = source.lengths
    order = np.argsort(lengths, kind="stable")
    chunks = (order[i : i + batch_size] for i in range(0, len(order), batch_size))
    parts = []
    with torch.inference_mode(), precision_context(device, "float32"):
        for indices in chain.from_iterable(
            _within_words(chunk, lengths, _EVALUATION_WORDS) for chunk in chunks
        ):
            outputs = model(source.batch(indices).to(device))
            targets = examples.targets(indices) if isinstance(examples, Examples) else None
            parts.append(model.decode(outputs, targets))
    return _in_order(parts, order)


def _in_order(parts: list[Predictions], order: Ids) -> Predictions:
    """Join the predictions of batches; example `order[i]` is the i-th of the joined ones."""
    if isinstance(parts[0], np.ndarray):
        joined = np.concatenate(parts)
        result = np.empty_like(joined)
        result[order] = joined
        return result
    by_example = dict(zip(order.tolist(), chain.from_iterable(parts), strict=True))
    return [by_example[i] for i in range(len(order))]


def _within_words(indices: Ids, lengths: Ids, max_words: int | None) -> Iterator[Ids]:
    """Cut a batch into parts of at most `max_words` words, including padding.

    The texts should be sorted by length. A longer text is a part of its own.
    """
    start, longest = 0, 0
    for end, index in enumerate(indices):
        longest = max(longest, int(lengths[index]))
        if max_words is not None and end > start and (end + 1 - start) * longest > max_words:
            yield indices[start:end]
            start, longest = end, int(lengths[index])
    yield indices[start:]


def _train_epoch(
    model: Head,
    examples: Examples,
    batches: Iterable[list[Ids]],
    step: Callable[[Iterable[Tensor]], None],
    bar: Any,
) -> Evaluation:
    """Train one epoch on batches, each of which is a list of parts.

    Returns the mean loss, without the penalty, and the accuracy during the epoch.
    """
    model.train()
    device = _device_of(model)
    losses, sizes, num_correct = [], [], []

    def part_losses(parts: list[Ids]) -> Iterator[Tensor]:
        """Yield the share of each part in the loss of a batch; its gradients are added up."""
        for i, indices in enumerate(parts):
            targets = copy_to_device(examples.targets(indices), device)
            outputs = model(examples.source.batch(indices).to(device))
            loss = model.loss(outputs, targets)
            losses.append(loss.detach())
            sizes.append(len(indices))
            num_correct.append(model.count_correct(outputs, targets).detach())
            share = loss if len(parts) == 1 else loss * (len(indices) / sum(map(len, parts)))
            yield share + model.regularization() if i == 0 else share

    with precision_context(device, "float32"):
        for parts in batches:
            step(part_losses(parts))
            bar.update()
    loss_sum = sum(n * x for n, x in zip(sizes, torch.stack(losses).tolist(), strict=True))
    num_texts = sum(sizes)
    return Evaluation(loss_sum / num_texts, float(torch.stack(num_correct).sum()) / num_texts)


def _device_of(model: Head) -> torch.device:
    return next(model.parameters()).device


def _stepper(model: Head, settings: TrainingPlan, steps: int) -> Callable[[Iterable[Tensor]], None]:
    """Return a function that takes one optimizer step on a sum of losses, computed one by one.

    An epoch has `steps` of them.
    """
    scalars = model.mix_parameters()
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
        optimizer, _cosine_with_warmup(settings.epochs * steps, min(steps, _MAX_WARMUP_STEPS))
    )

    def step(losses: Iterable[Tensor]) -> None:
        optimizer.zero_grad(set_to_none=True)
        for loss in losses:
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _MAX_GRADIENT_NORM)
        optimizer.step()
        schedule.step()

    return step


def _cosine_with_warmup(total: int, warmup: int) -> Callable[[int], float]:
    """Return the factor of the learning rate as a function of the step."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return max(0.0, 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup))))

    return factor


def _batches(lengths: Ids, batch_size: int, seed: tuple[int, int]) -> Iterator[Ids]:
    """Yield all texts once, in random batches of similar length."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(lengths))
    batches: list[Ids] = []
    for start in range(0, len(order), _BATCHES_SORTED_TOGETHER * batch_size):
        group = order[start : start + _BATCHES_SORTED_TOGETHER * batch_size]
        group = group[np.argsort(lengths[group], kind="stable")]
        batches += [group[i : i + batch_size] for i in range(0, len(group), batch_size)]
    if len(batches) > 1 and len(batches[-1]) == 1:  # batch statistics need two texts
        batches[-2:] = [np.concatenate(batches[-2:])]
    for i in rng.permutation(len(batches)):
        yield batches[i]
