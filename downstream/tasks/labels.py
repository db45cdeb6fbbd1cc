"""The error about a label that does not occur in training."""

from __future__ import annotations

from collections.abc import Sequence

from bilm.errors import CorpusError


def unknown_label(place: str, label: str, labels: Sequence[str]) -> CorpusError:
    """Return the error about a label of the validation or test split; `place` is its line."""
    return CorpusError(
        f"{place}: the label {label!r} does not occur in the training file; the known labels are "
        f"{', '.join(labels[:20])}. Correct it, or pass --unknown-labels keep to count it as an "
        "error"
    )
