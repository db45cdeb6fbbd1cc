"""The base class of JSON schemas, the types of common fields, and readable error messages.

A section is a pydantic model of one JSON object. All errors of a file are reported in one message,
each with its path in the JSON, the rule and the value; a misspelled key is reported with the
closest known one.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

    # Required keys whose absence needs an explanation.
    missing_keys: ClassVar[dict[str, str]] = {}


def parse_section(
    section: type[AnySection],
    tree: Any,
    source: str,
    error: type[BilmError] = ConfigError,
    names: Mapping[str, str] | None = None,
) -> AnySection:
    """Validate `tree` (parsed JSON) as a `section`; report all problems in one error.

    `names` are those under which a user gave settings, such as flags, by their path. Errors name
    settings by them, and are one line if they name no others.
    """
    try:
        # Validate text, because strict mode accepts an array for a tuple only in JSON text.
        return section.model_validate_json(json.dumps(tree))
    except RecursionError:
        raise error(f"{source} is nested too deeply") from None
    except ValidationError as e:
        problems = [p for p in e.errors() if not _is_consequence(p)]
        if names:
            named = [_named(section, problem, names) for problem in problems]
            if None not in named:
                raise error(_one_line(named)) from None
        lines = sorted({_describe(section, problem) for problem in problems})
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
        return f"{path}: is missing{_reason_missing(section, location)}"
    if kind == "json_invalid":  # an unpaired surrogate, or nested too deeply
        return f"invalid text: {message}"
    if kind == "extra_forbidden":
        return f"{path}: is not a known key{_hint(section, location)}"
    if kind == "value_error":
        reason = str(error["ctx"]["error"])
        return f"{path}: {reason}" if path else reason
    return f"{path}: {message[0].lower()}{message[1:]}, not {_shown(error['input'])}"


def _named(section: type[BaseModel], error: Any, names: Mapping[str, str]) -> str | None:
    """Describe an error under the name of its setting; None if it has no name."""
    path, kind, message = _json_path(error["loc"]), error["type"], error["msg"]
    known = next((p for p in (path, path.partition("[")[0]) if p in names), None)
    if kind == "value_error":
        reason = str(error["ctx"]["error"])
        if known is not None and not reason.startswith("--"):
            reason = f"{names[known]}: {reason}"
        for setting in sorted(names, key=len, reverse=True):
            pattern = re.escape(setting) if "." in setting else f"^{re.escape(setting)}(?= is )"
            reason = re.sub(rf"(?<![\w.-]){pattern}(?!\w)", names[setting], reason)
        return reason if reason != str(error["ctx"]["error"]) or reason[:2] == "--" else None
    if known is None:
        return None
    name = names[known]
    if kind == "missing":
        return f"{name} is missing{_reason_missing(section, error['loc'])}"
    rule = message.removeprefix("Input should be ")
    rule = f"it must be {rule}" if rule != message else f"{message[0].lower()}{message[1:]}"
    return f"{name} is {_shown(error['input'])}; {rule}"


def _one_line(reasons: Sequence[str | None]) -> str:
    """Join the descriptions of errors; settings that are missing are listed together."""
    distinct = sorted({reason for reason in reasons if reason is not None})
    missing = [reason.removesuffix(" is missing") for reason in distinct if _is_missing(reason)]
    rest = [reason for reason in distinct if not _is_missing(reason)]
    if missing:
        listed = " and ".join([", ".join(missing[:-1]), missing[-1]] if missing[1:] else missing)
        rest.insert(0, f"{listed} {'are' if missing[1:] else 'is'} missing")
    return "; ".join(rest)


def _is_missing(reason: str) -> bool:
    return reason.endswith(" is missing")


def _reason_missing(root: type[BaseModel], location: Sequence[int | str]) -> str:
    """Return the explanation why a key is required, if there is one."""
    section: type[BaseModel] | None = root
    for part in location[:-1]:
        field = section.model_fields.get(str(part)) if section is not None else None
        section = section_of(field.annotation) if field is not None else None
    if section is None or not issubclass(section, Section):
        return ""
    reason = section.missing_keys.get(str(location[-1]))
    return f"; {reason}" if reason else ""


def _shown(value: Any) -> str:
    given = json.dumps(value, ensure_ascii=False)
    return given if len(given) <= 60 else given[:57] + "..."


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
