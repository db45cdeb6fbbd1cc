"""What the commands that train heads have in common: their flags, and how they speak."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

from bilm.process_settings import share_cores
from downstream.settings import add_flags


def parse(
    prog: str,
    description: str | None,
    argv: Sequence[str] | None,
    add_own: Callable[[argparse.ArgumentParser], object] | None = None,
) -> argparse.Namespace:
    """A flag for every setting, `--progress`, and those of the command's own."""
    parser = argparse.ArgumentParser(
        prog=f"python -m downstream.{prog}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if add_own is not None:
        add_own(parser)
    add_flags(parser)
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="bars on stderr (default: if it is a terminal)",
    )
    return parser.parse_args(argv)


def set_up() -> None:
    """Messages to stderr, and a fair share of the cores."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("gensim").setLevel(logging.WARNING)  # it tells of every second
    share_cores()
