"""The HTML page of the errors of a task, its style, and the numbers of errors that are shown.

The page is one file without scripts. The tasks escape all texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from downstream.reports.pages import html_document, marks_legend

ERRORS_FILE = "errors.jsonl"
ERRORS_PAGE = "errors.html"

SHOWN_ERRORS = 15  # in report.md
MAX_ERRORS_ON_PAGE = 500

LABEL_MEANINGS = {
    "missed": "true, but not predicted",
    "wrong": "predicted, but not true",
    "right": "both",
}

LABEL_STYLE = """
body { font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222;
       background: #fff; }
article { border-top: 1px solid #ccc; padding: 0.6em 0; }
p { line-height: 1.9; margin: 0.2em 0; }
article p.side { padding-left: 6em; text-indent: -6em; }
b.side { display: inline-block; width: 6em; text-indent: 0; font-weight: normal; color: #595959; }
mark { color: inherit; border-radius: 3px; padding: 0.15em 0.25em; text-indent: 0; }
mark.right { background: #e3e3e3; }
mark.missed { background: #bfe3c3; border-bottom: 2px solid #2b7a37; }
mark.wrong { background: #f6c1b6; border-bottom: 2px dashed #b3311b; }
mark sub { font-weight: bold; padding-inline-start: 0.3em; }
small { color: #595959; }
"""


def errors_document(
    title: str, what: str, articles: Sequence[str], num_errors: int, meanings: Mapping[str, str]
) -> str:
    """Return the page of the first errors, whose labels are marked by `LABEL_STYLE`.

    `what` has errors, such as "test sentences with an error". `meanings` explains the marks.
    """
    legend = f" {marks_legend(meanings)}." if meanings else ""
    introduction = f"<p>{len(articles):,} of {num_errors:,} {what}.{legend}</p>"
    return html_document(title, LABEL_STYLE, [introduction, *articles])


def source_line(test_file: str, score: str) -> str:
    """Return a line in HTML: the test file, its score, and a link to the report."""
    name = escape(Path(test_file).name)
    return f'<p>Test file <b>{name}</b>: {escape(score)}. <a href="report.md">Report</a></p>'


def side_line(side: str, content: str) -> str:
    """Return a line of an error in HTML: the true or the predicted side, and its content."""
    return f'<p class="side"><b class="side">{side}</b><span dir="auto">{content}</span></p>'
