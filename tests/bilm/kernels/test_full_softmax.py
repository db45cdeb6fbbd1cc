from __future__ import annotations

from typing import Any

import pytest
import torch

from bilm.kernels import full_softmax
from bilm.kernels.full_softmax import most_likely


@pytest.mark.parametrize("chunk_logits", [1, 20, 1 << 20])
@pytest.mark.parametrize("count", [1, 4, 13])
def test_most_likely_equals_sorted_log_softmax(
    count: int, chunk_logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_softmax, "MAX_CHUNK_LOGITS", chunk_logits)
    torch.manual_seed(0)
    hidden, weight, bias = (torch.randn(*shape) for shape in ((5, 3), (13, 3), (13, 1)))
    expected = (hidden @ weight.t() + bias.squeeze(1)).log_softmax(dim=1)
    values, ids = most_likely(hidden, weight, bias, count)
    torch.testing.assert_close(values, expected.sort(dim=1, descending=True).values[:, :count])
    torch.testing.assert_close(expected.gather(1, ids), values)
    assert all(len(set(row)) == count for row in ids.tolist())


def test_most_likely_of_no_words() -> None:
    values, ids = most_likely(torch.randn(0, 3), torch.randn(7, 3), torch.randn(7, 1), 2)
    assert values.shape == ids.shape == (0, 2)


@pytest.mark.parametrize("count", [0, 8, 2.0, True, None])
def test_most_likely_rejects_counts(count: Any) -> None:
    with pytest.raises(ValueError, match="it must be an integer from 1 to 7"):
        most_likely(torch.randn(2, 3), torch.randn(7, 3), torch.randn(7, 1), count)
