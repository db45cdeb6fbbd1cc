"""The names of the mixes of layers, such as `trainable` and `layer:1`, and their parser."""

from __future__ import annotations

import re
from dataclasses import dataclass

MIX_NAMES = "trainable, frozen, learned, average, top, layer:K, none"

_PATTERN = re.compile(r"(trainable|frozen|learned|average|top|none)|layer:(\d{1,3})")


@dataclass(frozen=True)
class MixKind:
    """A mix of layers by its name; `layer` is the K of `layer:K`, and None for the others."""

    name: str
    layer: int | None = None

    @classmethod
    def parse(cls, text: str) -> MixKind:
        """Parse the name of a mix; raise ValueError if there is no such mix."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r:.60} is not a mix; use one of {MIX_NAMES}")
        if match[1] is not None:
            return cls(match[1])
        return cls("layer", int(match[2]))

    def __str__(self) -> str:
        return self.name if self.layer is None else f"layer:{self.layer}"

    def layers(self, num_layers: int) -> range:
        """Return the layers that the mix combines; raise ValueError if the model lacks one."""
        if self.name == "top":
            return range(num_layers - 1, num_layers)
        if self.layer is None:
            return range(num_layers)
        if self.layer >= num_layers:
            raise ValueError(
                f"{self}: the model has {num_layers} layers, 0 (the token encoder) to "
                f"{num_layers - 1}"
            )
        return range(self.layer, self.layer + 1)
