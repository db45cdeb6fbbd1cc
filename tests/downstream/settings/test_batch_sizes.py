from __future__ import annotations

import pytest

from downstream.settings.sections import batch_size_for


@pytest.mark.parametrize(
    ("num_texts", "usual", "expected"),
    [(64_539, 256, 256), (6_400, 256, 256), (6_399, 256, 255), (722, 256, 28), (73, 256, 8)],
)
def test_few_texts_have_small_batches(num_texts: int, usual: int, expected: int) -> None:
    assert batch_size_for(num_texts, usual) == expected


def test_a_smaller_usual_size_stays() -> None:
    assert batch_size_for(1_000_000, 4) == batch_size_for(2, 4) == 4
