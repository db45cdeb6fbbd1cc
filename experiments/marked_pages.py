"""Replace the parts of a Markdown page between markers; the text around them is kept."""

from __future__ import annotations

from pathlib import Path

from bilm.errors import CheckpointError

START, END = "<!-- figures: {} -->", "<!-- end -->"


def put_part(text: str, name: str, part: str, page: Path) -> str:
    """Return the text of `page` with the part between the markers of `name` replaced."""
    start = START.format(name)
    before, mark, rest = text.partition(start)
    if not mark or END not in rest:
        raise CheckpointError(f"{page} does not contain the markers {start} and {END}; add them")
    return f"{before}{start}\n{part}\n{END}{rest.partition(END)[2]}"
