from __future__ import annotations

import pytest

from bilm.model.precision import Precision
from bilm.training.config import load_config
from bilm.training.gpu_plan import PRODUCT_SHARE, GpuEstimate, estimate
from bilm.training.gpus import GPUS, PRECISIONS
from bilm.training.memory import ModelSize
from tests.conftest import ROOT

SIZE = ModelSize(softmax=407_050_623, others=93_600_848, vocabulary=793_471)


def of_big(gpu: str, precision: Precision, world: int = 1, sent: float = 0.0) -> GpuEstimate | None:
    """Return the estimate for the published model, with 128 rows per rank."""
    config = load_config(
        ROOT / "configs" / "big.json", [f"deepspeed.train_batch_size={128 * world}"]
    )
    return estimate(config, SIZE, GPUS[gpu], precision, world, sent)


# Independent estimates of the same step, in milliseconds; see docs/gpu.md.
@pytest.mark.parametrize(
    ("gpu", "precision", "milliseconds"),
    [
        ("a100", "float32", 107),
        ("a100", "tf32", 24),
        ("a100", "bfloat16", 15),
        ("h100", "bfloat16", 6.6),
    ],
)
def test_agrees_with_independent_estimates(
    gpu: str, precision: Precision, milliseconds: float
) -> None:
    figures = of_big(gpu, precision)
    assert figures is not None
    assert figures.time.seconds * 1e3 == pytest.approx(milliseconds, rel=0.1)
    assert figures.words_per_second == pytest.approx(2560 / figures.time.seconds)


def test_float32_is_bound_by_arithmetic() -> None:
    figures = of_big("a100", "float32")
    assert figures is not None
    # 1.45 * 10**12 operations, by hand: 2 layers of 9 * 4096 * 512 multiply-adds for 5120 slots,
    # three times, are 1.16; the softmax with 8192 negatives is 0.13; 1500 encoded words are 0.16.
    assert figures.time.arithmetic == pytest.approx(1.45 / 19.5 / PRODUCT_SHARE, rel=0.01)


def test_exchange_is_added() -> None:
    alone, linked = of_big("a100", "bfloat16"), of_big("a100", "bfloat16", sent=2.1e9)
    assert alone is not None
    assert linked is not None
    assert alone.time.seconds == max(alone.time.device, alone.time.launches)
    assert linked.time.seconds - alone.time.seconds == pytest.approx(2.1 / (300 * 0.7))


def test_memory_contains_state_and_activations() -> None:
    single, lower = of_big("a100", "float32"), of_big("a100", "bfloat16")
    assert single is not None
    assert lower is not None
    state = 4 * (2 * (SIZE.softmax + SIZE.others) + SIZE.others)
    gates = 2 * 5120 * 4 * 4096 * 4
    assert single.memory > state + gates
    assert single.memory < 1.5 * (state + gates) + 2e9
    assert lower.memory < single.memory - gates / 3
    assert single.fits(GPUS["a100"])


@pytest.mark.parametrize("name", GPUS)
def test_table_is_plausible(name: str) -> None:
    gpu = GPUS[name]
    assert gpu.source
    for precision in PRECISIONS:
        figures = of_big(name, precision)
        assert (figures is None) == (gpu.peak(precision) is None)
        assert figures is None or 0.005 < figures.time.seconds < 0.5
    assert (gpu.tf32 is None) == (gpu.bfloat16 is None) == (name[:4] in ("v100", "t4"))
