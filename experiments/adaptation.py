"""Continue the training of `english-small` on the text of a domain, and measure perplexity there.

Perplexity before and after is that of held-out text, with the vocabulary of `english-small`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bilm.errors import CheckpointError
from bilm.files.strict_json import read_json
from bilm.pretrained.named_models import model_path
from experiments.english_model import CONFIG, PRECISION
from experiments.stages import Done, Stages

MODEL = "english-small"

_MAX_CORPUS_BYTES = 1 << 28


@dataclass(frozen=True)
class Domain:
    """The text of a domain, and how to continue training on it, for one epoch at most."""

    name: str
    build_flags: tuple[str, ...]
    max_steps: int


class AdaptationFacts(NamedTuple):
    """What the continued training read and achieved, and how long it took."""

    words: int
    minutes: float
    perplexity_before: float
    perplexity_after: float


class Adaptation:
    """The stages of continued training on one domain, below the directory `work`."""

    def __init__(self, domain: Domain, text: Path, work: Path) -> None:
        self.domain, self.text = domain, text
        self.corpus = work / f"english_{domain.name}_corpus"
        self.output = work / f"english_{domain.name}"
        self._stages = Stages(work)

    @property
    def model(self) -> Path:
        """The adapted model."""
        return self.output / "best"

    def run(self) -> AdaptationFacts:
        """Run the stages that are not done."""
        name, corpus = f"english_{self.domain.name}", self.corpus
        command = ["python", "-m", "data_tools.build_shards", "--overwrite"]
        command += ["--vocab", str(model_path(MODEL) / "vocab.txt"), "--allow-unsorted-vocab"]
        command += [*self.domain.build_flags, "--input", str(self.text)]
        self._stages.run(f"{name}_corpus", [*command, "--output", str(corpus)])
        before = self._evaluate(f"{name}_before", MODEL)
        command = ["deepspeed", "--quiet", "--num_gpus", "1", "launch/pretrain.py"]
        command += ["--config", CONFIG, f"data.corpus={corpus}"]
        command += [f"train.output_dir={self.output}", f"train.init_from={MODEL}", PRECISION]
        command.append("train.optimizer.learning_rate=0.002")
        command += ["train.num_epochs=1", f"train.max_steps={self.domain.max_steps}"]
        done = self._stages.run(f"{name}_pretraining", command)
        after = self._evaluate(f"{name}_after", str(self.output))
        tree = read_json(corpus / "corpus.json", CheckpointError, _MAX_CORPUS_BYTES)
        return AdaptationFacts(
            words=tree["splits"]["train"]["words"],
            minutes=done.seconds / 60,
            perplexity_before=_perplexity(before),
            perplexity_after=_perplexity(after),
        )

    def _evaluate(self, name: str, model: str) -> Done:
        command: Sequence[str] = ["python", "launch/evaluate.py", "--model", model]
        return self._stages.run(name, [*command, "--corpus", str(self.corpus), "--json"])


def _perplexity(done: Done) -> float:
    """Return the perplexity that `bilm evaluate --json` has printed."""
    return float(json.loads(done.output.splitlines()[-1])["perplexity"])
