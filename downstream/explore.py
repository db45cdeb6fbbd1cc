"""Explore a model in a browser: `bilm explore --model DIR --text FILE`

The page shows surprisals and predictions, nearest occurrences in a text, similarities of words,
the probabilities of a classifier, and training curves. Without --model, it shows the model that
comes with bilm. `bilm serve` has the same flags and serves only the HTTP API.

The service is available on this machine only. From another machine, use an ssh tunnel
(`ssh -L 8765:127.0.0.1:8765 HOST`), or --host with a token in the environment variable BILM_TOKEN.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from bilm.distributed.process import share_cores
from bilm.errors import ConfigError, run_command
from bilm.extras import require
from bilm.model.precision import Precision
from downstream.build_index import add_index_flags, check_max_words, report_words
from downstream.explorer.index_text import check_text, open_index
from downstream.explorer.runs import RunCurves, has_curves

if TYPE_CHECKING:
    from downstream.explorer.service import Loaded

TOKEN_VARIABLE = "BILM_TOKEN"


@dataclass(frozen=True)
class ExploreOptions:
    """The flags of the command."""

    model: str
    text: Path | None
    max_words: int
    cache: Path | None
    classifier: Path | None
    tagger: Path | None
    run: Sequence[Path]
    host: str
    port: int | None
    allow_host: Sequence[str]
    insecure: bool
    open: bool
    api_only: bool
    device: str
    precision: Precision

    def __post_init__(self) -> None:
        check_max_words(self.max_words)
        if self.port is not None and not 0 <= self.port <= 65535:
            raise ConfigError(f"--port is {self.port}; it must be from 0 (any free port) to 65535")
        for run in self.run:
            if not has_curves(run):
                raise ConfigError(f"--run {run} has no metrics.jsonl; pass the directory of a run")
        if self.text is not None:
            check_text(self.text)

    @property
    def runs(self) -> list[RunCurves]:
        """The runs whose curves are shown; a model that is a run is the first."""
        model = Path(self.model)
        own = [model] if has_curves(model) and model not in self.run else []
        return [RunCurves(run) for run in [*own, *self.run]]


def main(argv: Sequence[str] | None = None) -> int:
    """Load the model and what belongs to it, and serve until a signal arrives."""
    options = _parse(argv)
    require("the service", "fastapi", "uvicorn", "httptools", "uvloop")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    share_cores()
    # These imports load torch and the web framework.
    from downstream.explorer.api import AppSettings, create_app
    from downstream.explorer.security import Access
    from downstream.explorer.server import Endpoint, serve

    token = os.environ.get(TOKEN_VARIABLE) or None
    Access(options.host, token, options.allow_host, options.insecure)  # check before binding
    with Endpoint.bind(options.host, options.port) as endpoint:
        names = [endpoint.name, *options.allow_host]
        access = Access(options.host, token, names, options.insecure)
        app = create_app(_load(options), AppSettings(access, with_page=not options.api_only))
        endpoint.listen()
        address = endpoint.address
        # A browser does not send the fragment; the page reads it.
        fragment = f"#token={quote(token, safe='')}" if token and not options.api_only else ""
        sys.stdout.write(f"{address}/{fragment}\n")
        sys.stdout.flush()
        if options.open:
            import webbrowser

            webbrowser.open(f"{address}/{fragment}")
        serve(app, endpoint)
    return 0


def _parse(argv: Sequence[str] | None) -> ExploreOptions:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--text", type=Path, help="a text file or a corpus in which to search; it is indexed first")
    add_index_flags(parser)
    add("--classifier", type=Path, help="a report of `bilm tasks classify` with its trained head")
    add("--tagger", type=Path, help="a report of `bilm tasks tag` with its trained head")
    add(
        "--run",
        type=Path,
        action="append",
        default=[],
        help="a run whose training curves to show (may be repeated)",
    )
    add("--host", default="127.0.0.1", help="address to bind to (default: %(default)s)")
    add("--port", type=int, help="0 for a free one (default: 8765, or a free one if it is in use)")
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a further name of this machine that requests may use (may be repeated)",
    )
    add("--insecure", action="store_true", help="allow other machines to connect without a token")
    add("--open", action="store_true", help="open the page in a browser")
    add("--api-only", action="store_true", help="do not serve the page")
    return ExploreOptions(**vars(parser.parse_args(argv)))


def _load(options: ExploreOptions) -> Loaded:
    from dataclasses import replace

    from bilm.embedding.embedder import DEFAULT_LIMITS, Embedder
    from downstream.classifier import TextClassifier
    from downstream.explorer.service import Loaded, scorer_of
    from downstream.predictors.loading import Places
    from downstream.predictors.tagger import Tagger

    limits = replace(DEFAULT_LIMITS, batch_invariant=True)  # answers do not depend on each other
    embedder = Embedder.from_pretrained(options.model, limits, options.device, options.precision)
    index = None
    if options.text is not None:
        bulk = Embedder(embedder.pretrained, DEFAULT_LIMITS, options.device, options.precision)
        index = open_index(options.text, bulk, options.max_words, options.cache, report_words)
    places = Places(device=options.device, precision=options.precision, embedder=embedder)
    classifier = tagger = None
    if options.classifier is not None:
        classifier = TextClassifier.open(options.classifier, places)
    if options.tagger is not None:
        tagger = Tagger.open(options.tagger, places)
    name = Path(options.model).name or options.model
    scorer = scorer_of(embedder.pretrained, embedder)
    return Loaded(name, embedder, scorer, index, classifier, options.runs, tagger)


if __name__ == "__main__":
    run_command(main)
