"""The base class of JSON schemas, the types of common fields, and readable error messages.

A section is a pydantic model of one JSON object. All errors of a file are reported in one message,
each with its path in the JSON, the rule and the value; a misspelled key is reported with the
closest known one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bilm.errors import BilmError, ConfigError

AnySection = TypeVar("AnySection", bound=BaseModel)

PositiveInt = Annotated[int, Field(ge=1)]

Share = Annotated[float, Field(ge=0, lt=1)]

Name = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """An immutable JSON object; types are not converted, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    # Keys that a user may expect here, each with the reason for its absence or an alternative.
    rejected_keys: ClassVar[dict[str, str]] = {}


def parse_section(
    section: type[AnySection], tree: Any, source: str, error: type[BilmError] = ConfigError
) -> AnySection:
    """Validate `tree` (parsed JSON) as a `section`; report all problems in one error."""
    try:
        # Validate text, because strict mode accepts an array for a tuple only in JSON text.
        return section.model_validate_json(json.dumps(tree))
    except RecursionError:
        raise error(f"{source} is nested too deeply") from None
    except ValidationError as e:
        lines = sorted({_describe(section, p) for p in e.errors() if not _is_consequence(p)})
        count = "1 error" if len(lines) == 1 else f"{len(lines)} errors"
        raise error("\n  ".join([f"{source}: {count}", *lines])) from None


def _is_consequence(problem: Any) -> bool:
    """Return whether `problem` follows from others: rejected items make their array too short."""
    return problem["type"] == "too_short" and bool(problem["input"])


def _describe(section: type[BaseModel], error: Any) -> str:
    location = error["loc"]
    path = _json_path(location)
    kind, message = error["type"], error["msg"]
    if kind == "missing":
        return f"{path}: is missing"
    if kind == "json_invalid":  # an unpaired surrogate, or nested too deeply
        return f"invalid text: {message}"
    if kind == "extra_forbidden":
        return f"{path}: is not a known key{_hint(section, location)}"
    if kind == "value_error":
        reason = str(error["ctx"]["error"])
        return f"{path}: {reason}" if path else reason
    given = json.dumps(error["input"], ensure_ascii=False)
    given = given if len(given) <= 60 else given[:57] + "..."
    return f"{path}: {message[0].lower()}{message[1:]}, not {given}"


def _json_path(location: Iterable[int | str]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _hint(root: type[BaseModel], location: Sequence[int | str]) -> str:
    """Explain an unknown key: why it is rejected, or the closest key here or in another section."""
    key = str(location[-1])
    section: type[BaseModel] = root
    for part in location[:-1]:
        field = section.model_fields.get(str(part))
        inner = section_of(field.annotation) if field is not None else None
        if inner is None:
            return ""  # an object with arbitrary keys
        section = inner
    if issubclass(section, Section) and key in section.rejected_keys:
        return f" here: {section.rejected_keys[key]}"
    near = difflib.get_close_matches(key, section.model_fields, n=1, cutoff=0.6)
    if near:
        return f"; the closest key is {near[0]!r}"
    paths = {name: path for path, name in _leaves(root)}
    elsewhere = difflib.get_close_matches(key, paths, n=1, cutoff=0.8)
    if elsewhere:
        return f"; the closest key is {paths[elsewhere[0]]!r}"
    return f"; the known keys are {', '.join(section.model_fields)}"


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the section in an annotation such as `Section | None`, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (dict, list, tuple):
        return None
    for part in get_args(annotation):
        if (section := section_of(part)) is not None:
            return section
    return None


def _leaves(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, field in section.model_fields.items():
        yield prefix + name, name
        inner = section_of(field.annotation)
        if inner is not None:
            yield from _leaves(inner, f"{prefix}{name}.")
