"""The card of `english-small`: sources, licenses, intended use and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from bilm.errors import ConfigError
from bilm.files.reading import sha256_of


class OpenText(NamedTuple):
    """A source of openly licensed text."""

    name: str
    words: int
    license: str
    attribution: str


SOURCES = (
    OpenText(
        "novels_eltec_eng_1840_1920",
        11_339_320,
        "public domain (markup CC BY 4.0)",
        "ELTeC-eng, COST Action Distant Reading for European Literary History",
    ),
    OpenText(
        "gutenberg_top_books",
        9_679_834,
        "public domain in the United States",
        "books of Project Gutenberg, without its header and footer",
    ),
    OpenText(
        "microsoft_docs",
        4_382_073,
        "CC BY 4.0",
        "Microsoft and contributors: dotnet/docs, MicrosoftDocs/windows-itpro-docs",
    ),
    OpenText(
        "mdn_web_docs",
        3_674_402,
        "CC BY-SA 2.5",
        "Mozilla Contributors: MDN Web Docs, mdn/content",
    ),
    OpenText(
        "github_docs_webdev",
        2_329_717,
        "CC BY 4.0 (web.dev: CC BY 3.0)",
        "GitHub and contributors: github/docs; Google: GoogleChrome/web.dev",
    ),
    OpenText(
        "openstax_cc_by_now",
        2_259_495,
        "CC BY 4.0",
        "OpenStax, Rice University: College Success, Introduction to Anthropology, Introduction to "
        "Intellectual Property, Introduction to Python Programming, Life, Liberty, and the Pursuit "
        "of Happiness, Nursing, Physics, Principles of Economics; free at openstax.org",
    ),
    OpenText(
        "us_government_digitalgov_18f",
        1_720_303,
        "public domain / CC0",
        "GSA/digitalgov.gov, 18F/18f.gsa.gov",
    ),
    OpenText("python_peps", 1_409_400, "public domain / CC0", "Python Enhancement Proposals"),
    OpenText(
        "turing_way_programming_historian",
        758_336,
        "CC BY 4.0",
        "The Turing Way Community; Programming Historian",
    ),
    OpenText("cia_world_factbook", 404_732, "public domain", "CIA World Factbook"),
)

_SUMMARY = (
    "A small general English biLM (ELMo): contextual word vectors built from characters. It comes "
    "with bilm, so that examples and first experiments need no training and no download."
)

_PREPARATION = (
    "Words are counted as separated by blanks. Documents were split into sentences and tokenized "
    "with moses by `data_tools`. In three quarters of the documents, typographic quotes were "
    "replaced by ASCII ones. 1% of the documents of each source, at least eight, were held out."
)

_USE = (
    "First experiments, tests and examples; frozen features for classification and tagging of "
    "English text with few labels; a starting point for continued training on the text of a domain "
    "(`train.init_from=english-small`). For results close to those of the paper, train a larger "
    "model on more text, or convert the published weights."
)

_LIMITS = (
    "It was trained on two CPU cores for little more than an hour, and has read 22 million words. "
    "The published ELMo is 15 times as large without its softmax, and has read 350 times as many.",
    "More than half of the text consists of books from before 1930, and more than a quarter of "
    "software documentation. News, conversation and social media are missing, and so are names and "
    "events of recent years. Views of past centuries on gender, race and religion are part of it.",
    "Words are tokenized by the rules of moses: `don 't`, not `do n't`.",
    "It knows no other language than English.",
    "Weights are stored in float16, except those of the character CNN and the projection of words.",
)


def card_details(data: Path, evaluation: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of the file for `bilm export --card`."""
    return {
        "name": "english-small",
        "language": ["en"],
        "license": "apache-2.0",
        "summary": _SUMMARY,
        "sources": [
            {
                "name": source.name,
                "license": source.license,
                "attribution": source.attribution,
                "words": source.words,
                "sha256": sha256_of(data / "open_text" / f"{source.name}.txt.gz", ConfigError),
            }
            for source in SOURCES
        ],
        "preparation": _PREPARATION,
        "evaluation": evaluation,
        "intended_use": _USE,
        "limits": list(_LIMITS),
    }
