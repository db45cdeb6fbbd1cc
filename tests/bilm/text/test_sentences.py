from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilm.text.sentences import split_sentences


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ("Mr. Smith met Dr. Jones. He left.", ["Mr. Smith met Dr. Jones.", "He left."]),
        ("J. R. R. Tolkien wrote. I read.", ["J. R. R. Tolkien wrote.", "I read."]),
        ("It cost 3.50 dlrs. It fell 0.4 pct.", ["It cost 3.50 dlrs.", "It fell 0.4 pct."]),
        (
            "See No. 5 first. He said no. Then left.",
            ["See No. 5 first.", "He said no.", "Then left."],
        ),
        ('"Why?" he asked. "No!" She ran.', ['"Why?" he asked.', '"No!"', "She ran."]),
        ("He said (yes.) Then he left.", ["He said (yes.)", "Then he left."]),
        ("Wait... and see. Wait... Then see.", ["Wait... and see.", "Wait...", "Then see."]),
        (
            "U.S. Steel rose. In the U.S. The law holds.",
            ["U.S. Steel rose.", "In the U.S.", "The law holds."],
        ),
        ("Acme Inc. Chairman spoke, e.g. Foo.", ["Acme Inc. Chairman spoke, e.g. Foo."]),
        ("He came at 5 p.m. The end.", ["He came at 5 p.m.", "The end."]),
        ("visit a.b.com today.no break", ["visit a.b.com today.no break"]),
        ("他来了。你好！「是吗？」他说。", ["他来了。", "你好！", "「是吗？」", "他说。"]),
        ("هل جاء؟ نعم جاء.", ["هل جاء؟", "نعم جاء."]),
        ("Title\nBody text here", ["Title", "Body text here"]),
        ("What?! No way!!! Yes.", ["What?!", "No way!!!", "Yes."]),
        (" . ", ["."]),
        ("", []),
        (" \n\t ", []),
    ],
)
def test_splits_sentences(document: str, expected: list[str]) -> None:
    assert split_sentences(document) == expected


@given(st.text(st.sampled_from("aB.!?…。 \n\t\"')5"), max_size=60))
def test_drops_only_white_space(document: str) -> None:
    parts = split_sentences(document)
    assert "".join("".join(parts).split()) == "".join(document.split())
    assert all(part and part == part.strip() for part in parts)
