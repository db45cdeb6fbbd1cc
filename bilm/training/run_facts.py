"""What a run records about its training, for the card of its model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bilm.errors import CheckpointError
from bilm.files.strict_json import parse_json
from bilm.pretrained.card_details import SourcePerplexity
from bilm.pretrained.file_names import METRICS_FILE
from bilm.pretrained.model_card import TrainingFacts
from bilm.training.config import Config, load_config
from bilm.training.environment import Environment, read_environment
from bilm.training.run_directory import CONFIG_FILE


def facts_of_run(run: Path, which: str) -> TrainingFacts | None:
    """Return the facts about the "best" model of a run, or about that of its last logged step.

    A directory with only a model has none.
    """
    if not all((run / name).is_file() for name in (CONFIG_FILE, METRICS_FILE)):
        return None
    config = load_config(run / CONFIG_FILE)
    events = _read_events(run / METRICS_FILE)
    evaluations = [event for event in events if event["event"] == "heldout"]
    best = min(evaluations, key=lambda event: float(event["perplexity"]), default=None)
    if which != "best":
        best = evaluations[-1] if evaluations else None
    step = best["step"] if which == "best" and best is not None else _last_step(events)
    environment = read_environment(run)
    return TrainingFacts(
        settings=json.loads(config.model_dump_json()),
        steps=step,
        words=step * _words_per_step(config),
        hours=_seconds(events, step, _words_per_step(config)) / 3600,
        hardware="unknown" if environment is None else _hardware(environment),
        versions={} if environment is None else environment.versions,
        corpus="unknown" if environment is None else environment.corpus,
        heldout=None if best is None else _perplexity(best),
    )


def _read_events(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise CheckpointError(f"cannot read {path}: {e}") from None
    events = [
        parse_json(line, f"{path}, line {i}", CheckpointError) for i, line in enumerate(lines, 1)
    ]
    return [event for event in events if isinstance(event, dict) and "event" in event]


def _last_step(events: list[dict[str, Any]]) -> int:
    return max((int(event["step"]) for event in events), default=0)


def _words_per_step(config: Config) -> int:
    return config.deepspeed.train_batch_size * config.data.unroll_steps


def _seconds(events: list[dict[str, Any]], last: int, words_per_step: int) -> float:
    """Return the time of all steps up to `last`, from the speed that each line states."""
    seconds, before = 0.0, 0
    for event in events:
        if event["event"] == "train" and before < event["step"] <= last:
            seconds += (event["step"] - before) * words_per_step / event["words_per_second"]
            before = event["step"]
    return seconds


def _hardware(environment: Environment) -> str:
    ranks = "1 rank" if environment.ranks == 1 else f"{environment.ranks} ranks"
    device = f"{environment.accelerator}, " if environment.accelerator is not None else ""
    return (
        f"{device}{environment.processor}, {environment.cores} cores, "
        f"{environment.memory_gib} GiB, {ranks}"
    )


def _perplexity(event: dict[str, Any]) -> SourcePerplexity:
    return SourcePerplexity(
        name="held-out split",
        perplexity=event["perplexity"],
        forward=event.get("perplexity_forward"),
        backward=event.get("perplexity_backward"),
        unknown_share=event["unknown_share"],
        predictions=event["predictions"],
    )
