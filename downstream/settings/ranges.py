"""The ranges of the sizes of heads and of the lengths of training.

The limits are far above every useful value; a mistyped one is rejected before the biLM reads a
text.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MAX_WIDTH = 65_536
MAX_COUNT = 10_000_000

Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]  # of steps, epochs or examples per step
BatchSize = Annotated[int, Field(ge=2, le=MAX_COUNT)]
