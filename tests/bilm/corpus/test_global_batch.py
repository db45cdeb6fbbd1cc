from __future__ import annotations

from typing import Any

import pytest

from bilm.corpus.global_batch import GlobalBatch, RankShare
from bilm.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": 0}, "rows is 0; it must be at least 1"),
        ({"rows": 0, "rows_setting": "--rows"}, "^--rows is 0"),
        ({"unroll": 0}, "unroll is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"layout": "dealed"}, "layout is 'dealed'; it must be one of cut, dealt"),
    ],
)
def test_rejects_invalid_batches(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GlobalBatch(**({"rows": 4, "unroll": 3} | arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"world": 0}, "world is 0"),
        ({"rank": 2, "world": 2}, "rank is 2; with 2 ranks it must be in 0..1"),
        ({"rank": -1}, "rank is -1"),
        ({"accumulation": 0}, "accumulation is 0; it must be at least 1"),
    ],
)
def test_rejects_invalid_shares(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RankShare(**arguments)


@pytest.mark.parametrize(
    ("rows", "world", "accumulation", "message"),
    [
        (10, 4, 1, r"rows is 10; it must be a multiple of 4 \(4 ranks x 1 .*\)\. Use 8\."),
        (4, 1, 3, r"must be a multiple of 3 \(1 ranks x 3 micro-batches .*\)\. Use 3\."),
        (1, 8, 1, "Use 8"),
        (20, 2, 4, "multiple of 8 .* Use 16"),
    ],
)
def test_rejects_rows_that_cannot_be_shared(
    rows: int, world: int, accumulation: int, message: str
) -> None:
    share = RankShare(world=world, accumulation=accumulation)
    assert not share.divides(rows)
    with pytest.raises(ConfigError, match=message):
        share.rows_per_batch(rows)
    with pytest.raises(ConfigError, match=r"^deepspeed\.train_batch_size is"):
        share.rows_per_batch(rows, "deepspeed.train_batch_size")


@pytest.mark.parametrize(("world", "accumulation"), [(1, 1), (2, 1), (3, 2), (12, 1)])
def test_ranks_share_all_rows_equally(world: int, accumulation: int) -> None:
    shares = [RankShare(rank, world, accumulation) for rank in range(world)]
    assert [row for share in shares for row in share.own_rows(12)] == list(range(12))
    assert {len(share.own_rows(12)) for share in shares} == {12 // world}
    assert {share.rows_per_batch(12) for share in shares} == {12 // world // accumulation}
