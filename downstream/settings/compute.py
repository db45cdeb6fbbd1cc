"""The settings that every command with a biLM has: the device, and the precision of the biLM."""

from __future__ import annotations

from pydantic import Field

from bilm.files.sections import Name, Section
from bilm.model.devices import AUTO, DEVICE_HELP
from bilm.model.precision import PRECISION_HELP, Precision


class ComputeSettings(Section):
    """Where the biLM and the heads are computed; heads are always computed in float32."""

    device: Name = Field(AUTO, description=DEVICE_HELP)
    precision: Precision = Field("float32", description=PRECISION_HELP)
