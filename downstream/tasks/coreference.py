"""Coreference: which mentions of a document refer to the same entity.

The convention about singletons, clusters of one mention, is that of the training file, unless it is
set: either they are predicted and scored, or they are removed from all files. Scores are always
given for both conventions. The validation split, if it has no file, is the last part of the
training documents; a document that occurs several times is in one split only.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bilm.errors import CorpusError
from downstream.settings.coreference import CorefDataSettings, CorefSettings
from downstream.tasks.splits import SPLITS, first_for_validation, paths_of, too_few
from downstream.texts.cluster_scores import ClusterScores, score_chains, score_clusters
from downstream.texts.clusters import Clusters, without_singletons
from downstream.texts.documents import Document, DocumentFile, read_documents

if TYPE_CHECKING:
    from downstream.features.batches import Examples
    from downstream.features.document_source import ClusterTargets
    from downstream.heads.coreference import CorefDescription, CorefPrediction
    from downstream.heads.saved_head import HeadInputs
    from downstream.tasks.task import Features, Inputs


@dataclass(frozen=True)
class CorefScores:
    """The scores of one split, by the convention of the task and without singletons.

    The two are equal if the task has no singletons.
    """

    all: ClusterScores
    chains: ClusterScores

    @property
    def main(self) -> float:
        """The CoNLL score by the convention of the task."""
        return self.all.conll

    @property
    def muc(self) -> float:
        """The F1 of MUC."""
        return self.all.muc.f1

    @property
    def b_cubed(self) -> float:
        """The F1 of B-cubed."""
        return self.all.b_cubed.f1

    @property
    def ceaf_e(self) -> float:
        """The F1 of the entity-based CEAF."""
        return self.all.ceaf_e.f1

    @property
    def mentions(self) -> float:
        """The F1 of mentions."""
        return self.all.mentions.f1

    @property
    def chains_conll(self) -> float:
        """The CoNLL score without singletons."""
        return self.chains.conll


@dataclass(frozen=True)
class DocumentSplit:
    """A split: the name of its file, and the indices of its documents."""

    file: str
    indices: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class CorefTask:
    """The files of documents by name, the splits, and what the training documents have."""

    files: dict[str, DocumentFile]
    splits: dict[str, DocumentSplit]
    singletons: bool
    genres: tuple[str, ...]
    has_speakers: bool

    def documents(self, split: str) -> list[Document]:
        """Return the documents of a split."""
        part = self.splits[split]
        return [self.files[part.file].documents[i] for i in part.indices]

    def clusters(self, split: str) -> list[Clusters]:
        """Return the true clusters of the documents of a split, by the convention of the task."""
        return [
            document.clusters if self.singletons else without_singletons(document.clusters)
            for document in self.documents(split)
        ]

    def inputs(self, settings: CorefSettings) -> Inputs:
        """Return the sentences of all documents of all files as words."""
        from downstream.features.texts_to_layers import UNLIMITED_WORDS, TextReading
        from downstream.tasks.task import Inputs

        texts = {
            name: tuple(words for document in file.documents for words in document.sentences)
            for name, file in self.files.items()
        }
        return Inputs(texts, TextReading(True, UNLIMITED_WORDS), "words")

    def examples(self, settings: CorefSettings, features: Features) -> dict[str, Examples]:
        """Return the windows of the documents of each split, and their clusters."""
        from downstream.features.batches import Examples
        from downstream.features.document_source import (
            DocumentInputs,
            DocumentSource,
            genre_ids,
            speaker_ids,
        )
        from downstream.features.plain_words import PlainWords
        from downstream.features.word_ranges import WordRanges

        words = {}
        for name, file in features.files.items():
            has_characters = settings.head.reads_characters(not isinstance(file, PlainWords))
            words[name] = WordRanges(file, features.tables.get(name), has_characters)
        result = {}
        for split in SPLITS:
            documents = self.documents(split)
            targets = self.targets(split, settings.data)
            genres = genre_ids([document.genre for document in documents], self.genres)
            speakers = None
            if self.has_speakers:
                speakers = [speaker_ids(d.speakers, len(d.words)) for d in documents]
            inputs = DocumentInputs(targets.windows, genres, speakers)
            source = DocumentSource(words[self.splits[split].file], inputs)
            result[split] = Examples(source, targets)
        return result

    def targets(self, split: str, data: CorefDataSettings) -> ClusterTargets:
        """Return the clusters and windows of a split; training windows do not overlap."""
        from downstream.features.document_source import ClusterTargets, windows_of

        part = self.splits[split]
        documents = self.files[part.file].documents
        firsts = list(itertools.accumulate((len(d.sentences) for d in documents), initial=0))
        lengths = [[len(words) for words in documents[i].sentences] for i in part.indices]
        is_training = split == "train"
        max_words = data.max_training_words if is_training else data.window_words
        firsts = [firsts[i] for i in part.indices]
        windows = windows_of(lengths, firsts, max_words, overlap=not is_training)
        return ClusterTargets(self.clusters(split), windows)

    def describe(self, settings: CorefSettings, inputs: HeadInputs) -> CorefDescription:
        """Return the description of a head."""
        from downstream.heads.coreference import CorefDescription

        return CorefDescription(
            format="bilm-coreference",
            **inputs.fields(settings.mix),
            singletons=self.singletons,
            genres=self.genres,
            has_speakers=self.has_speakers,
            window_words=settings.data.window_words,
            head=settings.head,
        )

    def score(self, targets: ClusterTargets, predictions: Sequence[CorefPrediction]) -> CorefScores:
        """Compare the predicted clusters with the true ones."""
        predicted = targets.join([prediction.clusters for prediction in predictions])
        return CorefScores(
            score_clusters(targets.documents, predicted), score_chains(targets.documents, predicted)
        )

    def num_mentions(self, split: str, longer_than: int = 0) -> int:
        """Return the number of true mentions of a split with more words than `longer_than`."""
        mentions = (m for clusters in self.clusters(split) for cluster in clusters for m in cluster)
        return sum(last - first + 1 > longer_than for first, last in mentions)

    def num_seen(self, split: str) -> int:
        """Return the number of documents of a split that also occur in the training split."""
        seen = {document.sentences for document in self.documents("train")}
        return sum(document.sentences in seen for document in self.documents(split))


def read_coref_task(settings: CorefSettings) -> CorefTask:
    """Read and check all documents."""
    data = settings.data
    files = {name: read_documents(path, data.format) for name, path in paths_of(data).items()}
    splits = {
        name: DocumentSplit(name, tuple(range(len(file.documents)))) for name, file in files.items()
    }
    if data.validation is None:
        splits |= _split_off_validation(files["train"], data.validation_share)
    train = [files["train"].documents[i] for i in splits["train"].indices]
    singletons = data.singletons
    if singletons is None:
        singletons = any(document.has_singletons for document in train)
    _check_training(files["train"], train, singletons)
    return CorefTask(
        files,
        {name: splits[name] for name in SPLITS},
        singletons,
        tuple(sorted({document.genre for document in train if document.genre is not None})),
        any(document.speakers is not None for document in train),
    )


def _check_training(file: DocumentFile, documents: Sequence[Document], singletons: bool) -> None:
    """Reject training documents without anything to learn."""
    clusters = [cluster for document in documents for cluster in document.clusters]
    if not any(singletons or len(cluster) > 1 for cluster in clusters):
        least = "one mention" if singletons else "two mentions"
        raise CorpusError(
            f"{file.path}: no training document has a cluster of at least {least}; check the "
            "field `clusters`, or the last column"
        )


def _split_off_validation(file: DocumentFile, share: float) -> dict[str, DocumentSplit]:
    """Return the training and validation splits: the last documents are used for validation.

    Equal documents count as one, so that none is in both splits.
    """
    places: dict[object, list[int]] = {}
    for i, document in enumerate(file.documents):
        places.setdefault(document.sentences, []).append(i)
    groups = list(places.values())
    if len(groups) < 2:
        raise too_few(file.path, len(file.documents), "document")
    first = first_for_validation(len(groups), share)
    parts = (("train", groups[:first]), ("validation", groups[first:]))
    return {
        name: DocumentSplit("train", tuple(sorted(itertools.chain.from_iterable(part))))
        for name, part in parts
    }
