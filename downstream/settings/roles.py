"""The settings and flags of `downstream.srl`."""

from __future__ import annotations

from downstream.settings.flags import OUTPUT_FLAGS, VALIDATION_FLAGS, Flag, FlagSet
from downstream.settings.tagging import SEQUENCE_FLAGS, SequenceSettings

ROLE_FLAGS = FlagSet(
    SequenceSettings,
    (
        *OUTPUT_FLAGS,
        *VALIDATION_FLAGS,
        Flag("--unknown-labels", "data.unknown_labels"),
        *SEQUENCE_FLAGS,
    ),
)
