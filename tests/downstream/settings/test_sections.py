from __future__ import annotations

import argparse
import json
import re

import pytest

from bilm.errors import ConfigError
from downstream.settings.flags import add_flags, read_settings
from downstream.settings.sections import (
    DataSettings,
    HeadSettings,
    HeadTraining,
    MixSettings,
    Settings,
    TargetSettings,
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


def test_mix_none_requires_vectors_at_the_input() -> None:
    none = MixSettings(kinds=("none",))
    with pytest.raises(ValueError, match=r"set head\.vectors"):
        HeadTraining(mix=none)
    both = HeadSettings(kind="gru", vectors="v", elmo_at="both")
    with pytest.raises(ValueError, match="set it to 'input'"):
        HeadTraining(mix=none, head=both)


def test_head_training_has_the_sections_of_the_settings() -> None:
    data = DataSettings(train="a.csv", test="b.csv")
    settings = Settings(model="m", output="o", data=data, mix=MixSettings(penalty=0.5))
    assert settings.head_training == HeadTraining(mix=MixSettings(penalty=0.5))


@pytest.mark.parametrize("value", ["3", "0", "1", "-0.5", "nan", "inf", "x", ""])
def test_rejects_thresholds_in_one_message(value: str) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    flags = ["--model=m", "--train=a.csv", "--test=b.csv", "--output=o", "--target=multilabel"]
    arguments = parser.parse_args([*flags, f"--threshold={value}"])
    with pytest.raises(ConfigError) as caught:
        read_settings(arguments, Settings)
    shown = re.escape(json.dumps(value)) if value in ("x", "") else r"-?[\d.]+|nan|inf|NaN|Infinity"
    rule = 'it must be above 0 and below 1, or "validation"'
    assert re.fullmatch(rf"--threshold is ({shown}); {rule}", str(caught.value))


def test_threshold_and_separator_belong_to_multilabel() -> None:
    for kind in ("class", "regression"):
        for name, value in (("threshold", 0.3), ("threshold", "validation"), ("separator", ";")):
            with pytest.raises(ValueError, match=f"for --target multilabel, .* {kind}; remove it"):
                TargetSettings.model_validate({"kind": kind, name: value})
        defaults = TargetSettings.model_validate({"kind": kind})
        assert TargetSettings.model_validate(defaults.model_dump()) == defaults
    chosen = TargetSettings(kind="multilabel", threshold="validation", separator=";")
    assert (chosen.threshold, chosen.separator) == ("validation", ";")
