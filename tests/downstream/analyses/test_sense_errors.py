from __future__ import annotations

from collections import Counter

from downstream.analyses.sense_errors import SenseError, SenseErrors, best_vectors
from downstream.analyses.sense_scores import Answers
from downstream.reports.error_pages import MAX_ERRORS_ON_PAGE
from downstream.texts.senses import Lemma, SenseInstance

WORDS = ("the", "bank", "runs")
BANK, RUN = Lemma("bank", "NOUN"), Lemma("run", "VERB")


def error(lemma: Lemma, predicted: str | None, *keys: str) -> SenseError:
    place = WORDS.index("bank" if lemma == BANK else "runs")
    instance = SenseInstance(0, place, place + 1, lemma, keys)
    return SenseError("f.jsonl, line 1", WORDS, instance, predicted, known=predicted is not None)


ERRORS = [
    error(BANK, "b", "a"),
    error(RUN, "r", "s", "t"),
    error(BANK, "b", "a"),
    error(BANK, None, "c"),
]
FOUND = SenseErrors("layer 1", 9, ERRORS, Counter({"bank (NOUN)": 5, "run (VERB)": 4}))


def test_report_has_the_most_frequent_confusions_and_lemmas() -> None:
    page = "\n".join(FOUND.paragraphs())
    assert "4 of 9 instances have a wrong answer of the best vectors (layer 1), or none" in page
    assert "1 have no answer, and of 1 no correct sense is in training" in page
    assert (
        "| a          | b               | 2         |\n| s or t     | r               | 1         |"
    ) in page
    rows = page[page.index("| lemma") :].splitlines()
    assert [cell.strip() for cell in rows[2].split("|")[1:-1]] == ["bank (NOUN)", "5", "1", "3"]
    assert [cell.strip() for cell in rows[3].split("|")[1:-1]] == ["run (VERB)", "4", "0", "1"]


def test_no_errors() -> None:
    none = SenseErrors("layer 1", 9, [], {})
    assert none.paragraphs()[-1] == "None."
    assert none.files()["errors.jsonl"] == ""


def test_page_shows_a_limited_number_of_errors() -> None:
    errors = ERRORS[:1] * (MAX_ERRORS_ON_PAGE + 1)
    files = SenseErrors("layer 1", 900, errors, {}).files()
    assert files["errors.html"].count("<article>") == MAX_ERRORS_ON_PAGE
    assert len(files["errors.jsonl"].splitlines()) == len(errors)


def test_best_vectors_are_not_the_most_frequent_sense() -> None:
    instances = [SenseInstance(0, 0, 1, BANK, (key,)) for key in "ab"]
    keys = {"most frequent sense": ["a", "b"], "layer 0": ["x", "y"], "layer 1": ["a", "y"]}
    assert best_vectors(Answers(instances, keys, [False] * 2, [True] * 2)) == "layer 1"
