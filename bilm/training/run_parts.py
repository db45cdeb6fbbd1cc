"""The parts of a run: those that never change, and the state that a checkpoint restores."""

from __future__ import annotations

from dataclasses import dataclass

from bilm.corpus.batches import BatchStream
from bilm.corpus.reader import Corpus
from bilm.distributed.engine import Engine
from bilm.distributed.ranks import Ranks
from bilm.distributed.signals import StopRequest
from bilm.model.bilstm import BiLstmState
from bilm.training.background_saves import BackgroundSaves
from bilm.training.config import Config
from bilm.training.perplexity import EvaluatedText
from bilm.training.run_record import Progress, StepSums
from bilm.training.run_settings import RunSettings


@dataclass(frozen=True)
class RunParts:
    """The parts of a run that are made once."""

    config: Config
    ranks: Ranks
    corpus: Corpus
    engine: Engine
    saves: BackgroundSaves
    stream: BatchStream
    heldout: EvaluatedText | None  # None if the corpus has no held-out split
    stop: StopRequest
    num_steps: int
    settings: RunSettings  # that checkpoints record


@dataclass
class RunState:
    """The state of a run, which changes with every step."""

    progress: Progress
    sums: StepSums
    lstm: BiLstmState  # of this rank's rows
    saved: Progress  # at the latest checkpoint, which may still be written
