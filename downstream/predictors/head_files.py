"""The files that describe trained heads, and the classes that read them. Does not import torch."""

from __future__ import annotations

from pathlib import Path

from bilm.errors import CheckpointError
from downstream.settings.coreference import COREF_FILE
from downstream.settings.pairs import PAIR_FILE
from downstream.settings.sections import CLASSIFIER_FILE
from downstream.settings.spans import ANSWERER_FILE
from downstream.settings.tagging import TAGGER_FILE

CLASSES = {
    CLASSIFIER_FILE: "downstream.TextClassifier",
    PAIR_FILE: "downstream.PairClassifier",
    TAGGER_FILE: "downstream.Tagger or downstream.RoleLabeler",
    ANSWERER_FILE: "downstream.QuestionAnswerer",
    COREF_FILE: "downstream.CoreferenceResolver",
}


def check_head_file(directory: Path, name: str) -> None:
    """Reject a directory that has the file of another kind of head instead of the file `name`."""
    others = [file for file in CLASSES if (directory / file).exists()]
    if others and name not in others:
        raise CheckpointError(
            f"{directory} has {others[0]}, not {name}: it contains another kind of head; use "
            f"{CLASSES[others[0]]}"
        )
