"""What the author of a model adds to its card: a JSON file, see `bilm export --card`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from bilm.errors import ConfigError
from bilm.files.sections import Name, Section, parse_section
from bilm.files.strict_json import read_json

Perplexity = Annotated[float, Field(gt=0)]


class Source(Section):
    """A text that the model was trained on."""

    name: Name
    license: Name
    attribution: Name
    words: Annotated[int, Field(ge=0)] | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class SourcePerplexity(Section):
    """The held-out perplexity on one source, as `bilm evaluate --json` prints it."""

    name: Name
    perplexity: Perplexity
    forward: Perplexity | None = None
    backward: Perplexity | None = None
    unknown_share: Annotated[float, Field(ge=0, le=1)]
    predictions: Annotated[int, Field(ge=1)]
    available_predictions: Annotated[int, Field(ge=1)] | None = None


class CardDetails(Section):
    """The part of a model card that cannot be derived from the model and its run."""

    name: Name | None = None
    language: tuple[Name, ...] = ()
    license: Name | None = None
    summary: Name | None = None
    sources: tuple[Source, ...] = ()
    preparation: Name | None = None
    evaluation: tuple[SourcePerplexity, ...] = ()
    results: Name | None = None
    intended_use: Name | None = None
    limits: tuple[Name, ...] = ()


def read_card_details(path: Path) -> CardDetails:
    """Read the JSON file at `path`."""
    return parse_section(CardDetails, read_json(path, ConfigError), str(path))
