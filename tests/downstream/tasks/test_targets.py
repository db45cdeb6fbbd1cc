from __future__ import annotations

import numpy as np
import pytest

from downstream.tasks.targets import NumberTask


@pytest.mark.parametrize(("scale", "count"), [(1.0, 0), (1e6, 1)])
def test_warns_about_numbers_of_another_unit(
    scale: float, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = np.arange(5, dtype=np.float32)
    NumberTask({}, {}).score(numbers, np.roll(numbers, 1) * np.float32(scale))
    assert len(caplog.messages) == count
    assert all("R^2 of 5 texts is -" in message for message in caplog.messages)
