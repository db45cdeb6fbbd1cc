"""Numbers with their nouns in messages and reports, such as `1 text` and `2,000 texts`."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun; the plural ends in s."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"
