from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bilm.kernels import backends
from bilm.model.language_model import BiLm
from bilm.text.characters import NUM_CHARACTERS
from bilm.training.config import Config, load_config
from bilm.training.step_operations import StepShape, count_launches, count_operations
from tests.conftest import ROOT

VOCABULARY, ROWS, DISTINCT = 60, 3, 7


def config(*overrides: str, kind: str = "sampled") -> Config:
    return load_config(
        ROOT / "configs" / "demo.json",
        [
            f"deepspeed.train_batch_size={ROWS}",
            "data.unroll_steps=5",
            "model.softmax.num_negatives=16",
            f"model.softmax.kind={kind}",
            *overrides,
        ],
    )


def shape_of(settings: Config) -> StepShape:
    return StepShape(
        rows=ROWS,
        unroll=settings.data.unroll_steps,
        micro_batches=1,
        distinct_words=DISTINCT,
        vocabulary=VOCABULARY,
        dense_parameters=1,
    )


def counted_flops(settings: Config) -> int:
    """Count the products of a step of plain PyTorch, without convolutions."""
    model = BiLm(settings.model, VOCABULARY).train()
    assert settings.model.characters is not None
    words = torch.randint(0, NUM_CHARACTERS, (DISTINCT, settings.model.characters.max_characters))
    inverse = torch.randint(0, DISTINCT, (2, ROWS, settings.data.unroll_steps))
    targets = torch.randint(0, VOCABULARY, inverse.shape)
    with FlopCounterMode(display=False) as counter:
        losses, _ = model(
            words, inverse, targets, model.zero_state(ROWS), model.draw_negatives((0, 0))
        )
        losses.sum().backward()
    by_operator = counter.get_flop_counts()["Global"]
    return sum(count for name, count in by_operator.items() if "convolution" not in str(name))


@pytest.mark.parametrize("kind", ["sampled", "full"])
@pytest.mark.parametrize("overrides", [(), ("model.lstm.dim=64",), ("model.lstm.num_layers=1",)])
def test_products_match_count_of_pytorch(
    kind: str, overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "requested", lambda: "torch")
    settings = config(*overrides, kind=kind)
    operations = count_operations(settings, shape_of(settings))
    expected = counted_flops(settings)
    ours = sum(operation.product_flops for operation in operations)
    # The fused kernels also compute the gradient of the state before the first time step.
    lstm = settings.model.lstm
    unneeded = lstm.num_layers * 2 * 2 * ROWS * lstm.projection_dim * 4 * lstm.dim
    assert ours - unneeded == expected


def test_count_is_linear_in_rows() -> None:
    settings = config()
    small = shape_of(settings)
    large = StepShape(**{**vars(small), "rows": 10 * ROWS, "distinct_words": 10 * DISTINCT})
    first, second = (
        sum(operation.product_flops for operation in count_operations(settings, shape))
        for shape in (small, large)
    )
    assert second == pytest.approx(10 * first)


def test_traffic_of_recurrence_reads_weights_at_each_time_step() -> None:
    settings = config("data.unroll_steps=100")
    lstm = settings.model.lstm
    operations = {o.name: o for o in count_operations(settings, shape_of(settings), 2)}
    weights = 5 * lstm.dim * lstm.projection_dim * 2  # both directions
    assert operations["LSTM recurrence"].traffic > 2 * 2 * 100 * lstm.num_layers * weights


def test_launches_match_published_count_of_fused_layer() -> None:
    one, two = (config("data.unroll_steps=20", f"model.lstm.num_layers={n}") for n in (1, 2))
    difference = count_launches(two, shape_of(two)) - count_launches(one, shape_of(one))
    assert difference == pytest.approx(86 + 97, abs=5)


def test_micro_batches_repeat_launches() -> None:
    settings = config()
    once = shape_of(settings)
    twice = StepShape(**{**vars(once), "micro_batches": 2})
    assert count_launches(settings, twice) > 1.2 * count_launches(settings, once)
