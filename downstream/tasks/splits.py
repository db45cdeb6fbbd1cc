"""The names of the splits of a task."""

from __future__ import annotations

SPLITS = ("train", "validation", "test")
