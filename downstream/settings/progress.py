"""Progress bars on stderr."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Progress:
    """The label of a progress bar, and whether it is shown: always, never, or on a terminal."""

    label: str
    shown: bool | None = None  # None: only if stderr is a terminal

    def bar(self, unit: str, total: int | None = None, items: Iterable[Any] | None = None) -> Any:
        """Return a tqdm bar, which iterates over `items` if they are given."""
        from tqdm import tqdm

        disable = None if self.shown is None else not self.shown
        return tqdm(
            items, desc=self.label, unit=f" {unit}", total=total, unit_scale=True, disable=disable
        )
