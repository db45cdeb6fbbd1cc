"""Records of runs, for tests of checkpoints."""

from __future__ import annotations

from bilm.training.run_record import NO_PROGRESS, VERSION, RunRecord, StepSums


def record_of(step: int, corpus: str = "a fingerprint") -> RunRecord:
    """Return a record of `step` with the current version."""
    return RunRecord(
        version=VERSION,
        step=step,
        settings={"train.seed": 0},
        changeable={"train.precision": "float32"},
        corpus=corpus,
        progress=NO_PROGRESS.model_copy(update={"step": step}),
        meters=StepSums(losses=(0.1 + step, 2.0), predictions=3.0, steps=1.0),
    )
