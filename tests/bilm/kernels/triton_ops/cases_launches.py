"""The launches of each operation on a second device, and no synchronization."""

from __future__ import annotations

import pytest
import torch

from tests.bilm.kernels.triton_ops.calls import CALLS, MODULES, TIME, WIDTH, Call, layer_call
from tests.second_device.device import Counts, counting, second_device

# forward and backward, of both directions and all time steps
PROJECTED = (4 * TIME + 6, 4 * TIME + 8)
PLAIN = (2 * TIME + 6, 2 * TIME + 7)
INFERENCE = 4 * TIME + 4


def launches(call: Call, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of launches forward and backward; Triton kernels are not run."""
    kernels: list[str] = []
    for module in MODULES:
        monkeypatch.setattr(module, "launch", lambda kernel, *_, **__: kernels.append(kernel))
    numbers = []

    def note(counts: Counts) -> None:
        assert counts.synchronizations == {}
        numbers.append(counts.num_operators + len(kernels))
        print(numbers[-1], "launches:", counts.operators, f"and {len(kernels)} kernels")
        kernels.clear()

    with counting() as counts:
        result = call()
    note(counts)
    if result is not None and result.requires_grad:
        grad = torch.ones_like(result)
        with counting() as counts:
            result.backward(grad)
        note(counts)
    return numbers


@pytest.mark.parametrize("name", CALLS)
def test_operation_does_not_wait(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"device": second_device(), "dtype": torch.float32}
    assert launches(CALLS[name](options), monkeypatch)


@pytest.mark.parametrize("has_lengths", [False, True])
@pytest.mark.parametrize(("dim", "expected"), [(2 * WIDTH, PROJECTED), (WIDTH, PLAIN)])
def test_launches_of_a_layer(
    dim: int, expected: tuple[int, int], has_lengths: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"device": second_device(), "dtype": torch.float32}
    lengths = torch.zeros(16, dtype=torch.int64, device=second_device()) if has_lengths else None
    call = layer_call(options, dim, lengths)
    assert tuple(launches(call, monkeypatch)) == expected
    with torch.no_grad():
        (inference,) = launches(call, monkeypatch)
    assert inference <= INFERENCE
