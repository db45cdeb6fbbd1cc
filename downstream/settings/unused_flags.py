"""The flags that have an effect only together with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bilm.errors import ConfigError
from downstream.settings.common import TaskSettings


class _Rule(NamedTuple):
    """A setting, when it has an effect, and the condition in words."""

    path: str
    is_used: Callable[[Any], bool]
    condition: str


_RULES = (
    _Rule("mix.weights", lambda s: "frozen" in s.mix.kinds, "the mix `frozen`"),
    _Rule("mix.dim", lambda s: "learned" in s.mix.kinds, "the mix `learned`"),
    _Rule("target.threshold", lambda s: s.target.kind == "multilabel", "--target multilabel"),
    _Rule("target.separator", lambda s: s.target.kind == "multilabel", "--target multilabel"),
    _Rule("data.tokenizer", lambda s: s.model is None, "runs without --model"),
)


def reject_unused(settings: TaskSettings, passed: Mapping[str, str]) -> None:
    """Raise ConfigError if a flag that was passed has no effect; `passed` has flags by path."""
    for path, is_used, condition in _RULES:
        if path in passed and not is_used(settings):
            raise ConfigError(f"{passed[path]} has an effect only for {condition}; remove it")
