from __future__ import annotations

import pytest

from downstream.settings.sections import (
    DataSettings,
    HeadSettings,
    HeadTraining,
    MixSettings,
    Settings,
    TrainingSettings,
    batch_size_for,
)


@pytest.mark.parametrize(
    ("num_texts", "usual", "expected"),
    [
        (64_539, 256, 256),
        (6_400, 256, 256),
        (6_399, 256, 255),
        (722, 256, 28),
        (73, 256, 8),
        (1_000_000, 4, 4),
        (2, 4, 4),
    ],
)
def test_small_data_sets_get_small_batches(num_texts: int, usual: int, expected: int) -> None:
    assert batch_size_for(num_texts, usual) == expected


def test_defaults_depend_on_the_head() -> None:
    pooled, recurrent = HeadTraining(), HeadTraining(head=HeadSettings(kind="gru"))
    assert (pooled.epochs, pooled.learning_rate, pooled.head.hidden) == (12, 3e-3, 256)
    assert (pooled.batch_size(100_000), pooled.batch_size(1000)) == (512, 40)
    assert (recurrent.epochs, recurrent.learning_rate, recurrent.head.hidden) == (6, 1e-3, 0)
    assert recurrent.batch_size(100_000) == 64


def test_given_values_replace_the_defaults() -> None:
    train = TrainingSettings(epochs=3, learning_rate=0.5, batch_size=7)
    chosen = HeadTraining(head=HeadSettings(hidden_dim=0), train=train)
    assert (chosen.epochs, chosen.learning_rate, chosen.batch_size(10)) == (3, 0.5, 7)
    assert chosen.head.hidden == 0


def test_mix_none_needs_vectors_at_the_input() -> None:
    none = MixSettings(kinds=("none",))
    with pytest.raises(ValueError, match=r"set head\.vectors"):
        HeadTraining(mix=none)
    both = HeadSettings(kind="gru", vectors="v", elmo_at="both")
    with pytest.raises(ValueError, match="set it to 'input'"):
        HeadTraining(mix=none, head=both)


def test_settings_pass_their_sections_to_the_training() -> None:
    data = DataSettings(train="a.csv", test="b.csv")
    settings = Settings(model="m", output="o", data=data, mix=MixSettings(penalty=0.5))
    assert settings.head_training == HeadTraining(mix=MixSettings(penalty=0.5))
