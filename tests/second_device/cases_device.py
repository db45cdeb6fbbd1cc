"""The second device itself: rejected calls, counts, memory and autocast."""

from __future__ import annotations

import pytest
import torch

from tests.second_device.device import AUTOCAST_DTYPES, Counts, counting, second_device


@pytest.fixture
def device() -> str:
    return second_device()


def test_rejects_tensors_of_two_devices(device: str) -> None:
    on_device = torch.ones(3, device=device)
    with pytest.raises(RuntimeError, match="at least two devices, fakegpu:0 and cpu"):
        on_device + torch.ones(3)
    assert (on_device + torch.tensor(1.0)).cpu().tolist() == [2.0] * 3


def test_counts_operators(device: str) -> None:
    a = torch.randn(4, 5, device=device)
    with counting() as counts:
        b = a.transpose(0, 1) @ a
        b += 1.0
        b.view(-1)
    assert counts.operators == {"aten::mm": 1, "aten::add": 1}
    assert counts.num_operators == 2
    assert counts.num_synchronizations == 0


def test_backward_counts(device: str) -> None:
    weight = torch.randn(5, 3, device=device, requires_grad=True)
    inputs = torch.randn(4, 5, device=device)
    with counting() as counts:
        torch.tanh(inputs @ weight).sum().backward()
    assert counts.operators["aten::mm"] == 2
    assert counts.num_synchronizations == 0
    assert weight.grad is not None
    assert weight.grad.device.type == device


def test_counts_synchronizations_by_cause(device: str) -> None:
    a = torch.tensor([3.0, 0.0, 3.0], device=device)
    on_host = torch.ones(3)
    with counting() as counts:
        a.sum().item()
        bool(a.any())
        a.cpu()
        on_host.to(device)
        a.nonzero()
        a.unique()
        a[a > 0]
        a[a > 0] = 1.0
        torch.equal(a, a)
    assert counts.synchronizations == {
        "item": 2,
        "copy to host": 1,
        "copy to device": 1,
        "aten::nonzero": 2,  # one of them for the index
        "aten::_unique2": 1,
        "aten::_index_put_impl_": 1,
        "aten::equal": 1,
    }


def test_copies_that_do_not_block_are_not_synchronizations(device: str) -> None:
    on_host = torch.ones(3)
    with counting() as counts:
        on_device = on_host.to(device, non_blocking=True)
        on_device.clone()
    assert counts.operators["copy to device"] == 1
    assert counts.num_synchronizations == 0


def test_counts_streams_and_events(device: str) -> None:
    on_host, stream = torch.ones(3), torch.Stream(torch.device(device))
    default = torch.accelerator.current_stream()
    assert stream != default
    with counting() as counts:
        torch.accelerator.set_stream(stream)
        copied = on_host.to(device, non_blocking=True)
        event = stream.record_event()
        torch.accelerator.set_stream(default)
        default.wait_event(event)
        copied.record_stream(default)
        event.synchronize()
        stream.synchronize()
        torch.accelerator.synchronize()
    assert counts.operators == {
        "copy to device on a side stream": 1,
        "wait for event": 1,
        "aten::record_stream": 1,
    }
    assert counts.synchronizations == {"event": 1, "stream": 1, "device": 1}


def test_counting_starts_at_zero(device: str) -> None:
    torch.ones(2, device=device).sum().item()
    with counting() as counts:
        assert counts == Counts()
    assert counts == Counts()


def test_uninitialized_memory_is_nan(device: str) -> None:
    assert torch.empty(7, device=device).isnan().all()


def test_autocast_lowers_products_only(device: str) -> None:
    a = torch.randn(2, 3, 3, device=device)
    for dtype in AUTOCAST_DTYPES:
        with torch.autocast(device, dtype):
            assert (a[0] @ a[1]).dtype == dtype
            assert torch.bmm(a, a).dtype == dtype
            assert torch.baddbmm(a, a, a).dtype == dtype
            assert torch.addmm(a[0], a[0], a[1]).dtype == dtype
            assert (a + a).dtype == torch.float32
            assert a.to(dtype).exp().dtype == torch.float32


def test_sparse_gradients(device: str) -> None:
    table = torch.randn(9, 4, device=device, requires_grad=True)
    ids = torch.tensor([2, 5, 2], device=device)
    torch.nn.functional.embedding(ids, table, sparse=True).sum().backward()
    assert table.grad is not None
    assert table.grad.is_sparse
    with counting() as counts:
        dense = table.grad.coalesce()
    assert counts.synchronizations == {"aten::_coalesce": 1}
    assert dense.indices().cpu().tolist() == [[2, 5]]
    assert dense.values().cpu()[0].tolist() == [2.0] * 4


def test_running_statistics(device: str) -> None:
    norm = torch.nn.BatchNorm1d(3, affine=False).to(device)
    norm(torch.arange(12.0).view(4, 3).to(device))
    assert norm.running_mean is not None
    torch.testing.assert_close(norm.running_mean.cpu(), 0.1 * torch.tensor([4.5, 5.5, 6.5]))


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_layers(device: str, kind: type[torch.nn.RNNBase]) -> None:
    torch.manual_seed(0)
    layer, inputs = kind(3, 4, batch_first=True), torch.randn(2, 5, 3)
    expected = layer(inputs)[0]
    expected.square().sum().backward()
    grads = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    outputs = layer.to(device)(inputs.to(device))[0]
    outputs.square().sum().backward()
    torch.testing.assert_close(outputs.cpu(), expected)
    for parameter, grad in zip(layer.parameters(), grads, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), grad)
    with torch.inference_mode():
        torch.testing.assert_close(layer(inputs.to(device))[0].cpu(), expected)
