"""The global batch, which all ranks read together, and the share of it that one rank reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from bilm.errors import ConfigError

Layout = Literal["cut", "dealt"]


def _check_minimum(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise ConfigError(f"{name} is {value}; it must be at least {minimum}")


@dataclass(frozen=True)
class GlobalBatch:
    """The shape of a batch over all ranks, and the order in which a split is read.

    `shuffle` permutes the blocks of the split in every epoch; without it they are read in their
    order on disk. `layout` is one of those in `bilm.corpus.row_layouts`. `rows_setting` is the
    key or flag that sets `rows`, for error messages.
    """

    rows: int
    unroll: int  # predictions per row
    seed: int = 0
    shuffle: bool = True
    layout: Layout = "cut"
    rows_setting: str = "rows"

    def __post_init__(self) -> None:
        _check_minimum(self.rows_setting, self.rows, 1)
        _check_minimum("unroll", self.unroll, 1)
        _check_minimum("seed", self.seed, 0)
        if self.layout not in get_args(Layout):
            raise ConfigError(
                f"layout is {self.layout!r}; it must be one of {', '.join(get_args(Layout))}"
            )


@dataclass(frozen=True)
class RankShare:
    """One rank of `world` ranks, which splits its rows into `accumulation` micro-batches."""

    rank: int = 0
    world: int = 1
    accumulation: int = 1

    def __post_init__(self) -> None:
        _check_minimum("world", self.world, 1)
        _check_minimum("accumulation", self.accumulation, 1)
        if not 0 <= self.rank < self.world:
            raise ConfigError(
                f"rank is {self.rank}; with {self.world} ranks it must be in 0..{self.world - 1}"
            )

    def divides(self, rows: int) -> bool:
        """Return whether all micro-batches of all ranks get the same number of rows."""
        return rows % (self.world * self.accumulation) == 0

    def rows_per_batch(self, rows: int, setting: str = "rows") -> int:
        """Return the number of rows per micro-batch; reject `rows` that cannot be shared equally.

        `setting` is the key or flag that sets `rows`, for the error message.
        """
        parts = self.world * self.accumulation
        if not self.divides(rows):
            nearest = max(parts, round(rows / parts) * parts)
            raise ConfigError(
                f"{setting} is {rows}; it must be a multiple of {parts} ({self.world} ranks x "
                f"{self.accumulation} micro-batches per step). Use {nearest}."
            )
        return rows // parts

    def own_rows(self, rows: int) -> range:
        """Return the rows of the global batch that this rank reads."""
        return range(self.rank * rows // self.world, (self.rank + 1) * rows // self.world)


SINGLE_RANK = RankShare()
