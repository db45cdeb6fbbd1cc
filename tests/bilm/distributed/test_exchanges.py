from __future__ import annotations

import pytest
import torch
from torch import nn

from bilm.distributed.dense_exchange import DenseExchange
from tests.bilm.distributed.rank_scripts import assert_equal_on_ranks


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("kind", ["row_ranks", "dense_ranks"])
def test_averages_equal_sums(kind: str, ranks: int) -> None:
    assert_equal_on_ranks(f"tests.bilm.distributed.{kind}", ranks)


def test_buckets_are_not_larger_than_limit() -> None:
    weights = [nn.Parameter(torch.zeros(size)) for size in (3, 9, 1, 2, 2)]  # 4 bytes each
    exchange = DenseExchange(weights, torch.float32, bucket_bytes=20)
    sizes = [[len(weight) for weight in bucket.weights] for bucket in exchange._buckets]
    assert sizes == [[2, 2, 1], [9], [3]]  # from the last weight to the first
