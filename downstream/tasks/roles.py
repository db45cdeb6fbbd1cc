"""Semantic roles: tagging with one example per predicate, whose place the head is given.

As in the CoNLL evaluation, the predicate itself (type V) does not count in the scores, and the
ranges of a discontinuous argument, such as ARG1 and C-ARG1, are one argument.
"""

from __future__ import annotations

from dataclasses import replace

from downstream.settings.tagging import SequenceSettings
from downstream.tasks.splits import paths_of
from downstream.tasks.tagging import TaggingTask, make_tagging
from downstream.texts.roles import PREDICATE_TYPE, read_roles
from downstream.texts.tag_sequences import SpanRules


def read_role_task(settings: SequenceSettings) -> TaggingTask:
    """Read and check all sentences and their predicates."""
    files = {name: read_roles(path) for name, path in paths_of(settings.data).items()}
    task = make_tagging(files, settings.data, is_bio=True)
    return replace(task, has_predicates=True, rules=SpanRules((PREDICATE_TYPE,), True))
