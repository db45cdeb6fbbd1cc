"""The error about a label that does not occur in training."""

from __future__ import annotations

from collections.abc import Sequence

from bilm.errors import CorpusError

_KEEP = "or pass --unknown-labels keep to count it as an error"


def unknown_label(
    place: str,
    label: str,
    labels: Sequence[str],
    part_of_file: str | None = None,
    remedy: str = _KEEP,
) -> CorpusError:
    """Return the error about a label of the validation or test split; `place` is its line.

    `part_of_file` describes the training split if it is only a part of the training file. `remedy`
    is what to do if the label is correct.
    """
    where = "the training file"
    if part_of_file is not None:
        where, remedy = f"the training split ({part_of_file})", f"pass --validation, {remedy}"
    return CorpusError(
        f"{place}: the label {label!r} does not occur in {where}; the known labels are "
        f"{', '.join(labels[:20])}. Correct it, {remedy}"
    )
