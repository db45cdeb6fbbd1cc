"""Build a corpus in a workspace, and move it to its place when it is complete.

The text is read once. Memory grows only with the number of word types; the build needs about 9
bytes of disk space per word.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from bilm.corpus.manifest import MANIFEST_FILE
from bilm.errors import CorpusError
from bilm.files.writing import reject_existing
from bilm.text.vocabulary import Vocabulary
from data_tools.building.pipeline import Content, Pipeline
from data_tools.building.tasks import TaskRunner
from data_tools.building.workers import connect, start_engine
from data_tools.building.workspace import shared_build, whole_build
from data_tools.reading.options import (
    CorpusOptions,
    GivenVocabulary,
    OutputOptions,
    VocabularyOptions,
)
from data_tools.reading.parts import plan_parts


@dataclass(frozen=True)
class Summary:
    """The contents of a corpus, and the cost of building it."""

    content: Content
    seconds: float
    peak_bytes: int  # the sum of the peaks of all processes (an upper bound)

    @property
    def num_words(self) -> int:
        """The number of words in all splits."""
        return sum(split.words for split in self.content.splits.values())


def build_corpus(options: CorpusOptions) -> Summary | None:
    """Build the corpus that `options` describe, or with `--part` only encode a share of its parts.

    Returns None if only a share was encoded.
    """
    start = time.monotonic()
    given = _read_vocabulary(options.vocabulary)
    check_replaceable(options.output)
    reject_existing(options.output.path, CorpusError, options.output.overwrite)
    parts = plan_parts(options.text.inputs, options.text.encoding)
    run = options.run
    if run.share is not None:
        with (
            shared_build(options, parts, run.share) as workspace,
            start_engine(options.text.num_workers) as engine,
        ):
            Pipeline(options, given, parts, workspace, TaskRunner(engine)).encode(run.share)
        return None
    with (
        connect(run.scheduler) as cluster,  # first, since an error in the build removes its parts
        whole_build(options, parts) as workspace,
        start_engine(options.text.num_workers, cluster) as engine,
    ):
        runner = TaskRunner(engine)
        content = Pipeline(options, given, parts, workspace, runner).run()
    return Summary(content, time.monotonic() - start, runner.total_peak())


def _read_vocabulary(options: VocabularyOptions | GivenVocabulary) -> Vocabulary | None:
    return Vocabulary.read(options.file) if isinstance(options, GivenVocabulary) else None


def check_replaceable(output: OutputOptions) -> None:
    """Reject overwriting anything that is not a corpus."""
    path = output.path
    if not path.exists() or not output.overwrite:
        return
    if not path.is_dir() or (any(path.iterdir()) and not (path / MANIFEST_FILE).is_file()):
        raise CorpusError(
            f"{path} is not a corpus (it has no {MANIFEST_FILE}), so --overwrite does not replace "
            "it; remove it yourself, or choose another path"
        )


def print_summary(summary: Summary | None, output: Path) -> None:
    """Print the contents and the cost of a corpus, if it is complete."""
    if summary is None:
        print("the parts are complete; run the same command without --part when all of them are")
        return
    print(
        f"{output}: {summary.num_words:,} words, {summary.content.num_types:,} types, vocabulary "
        f"of {summary.content.vocabulary_size:,}"
    )
    for name, split in summary.content.splits.items():
        rate = split.unknown_words / max(split.words, 1)
        print(
            f"{name}: {split.words:,} words in {split.sentences:,} sentences, "
            f"{len(split.shards)} shards, {rate:.2%} <UNK>"
        )
    print(
        f"{summary.seconds:,.1f} s, {summary.num_words / summary.seconds:,.0f} words/s, peak "
        f"memory {summary.peak_bytes / 2**20:,.0f} MiB"
    )
