"""The card of a model: README.md in the format of the Hugging Face Hub.

Sizes, tokenizer and training facts are derived from the model and its run. What only the author
knows, such as licenses and the intended use, comes from `CardDetails`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bilm.pretrained.card_details import CardDetails, SourcePerplexity

if TYPE_CHECKING:
    from bilm.pretrained.model_directory import PretrainedBiLm

NOT_STATED = "The author of this model has not stated it."

_DEFAULT_USE = (
    "Contextual word vectors for analyses, and as frozen or fine-tuned input of task models."
)

_DEFAULT_LIMITS = (
    "The model reproduces the vocabulary, topics and biases of its training text.",
    "It assigns probabilities to words; it does not know whether a statement is true.",
)


@dataclass(frozen=True)
class TrainingFacts:
    """What a run records about the training of its model."""

    settings: dict[str, Any]  # the configuration of the run
    steps: int
    words: int  # predictions of one direction, with sentence ends
    hours: float
    hardware: str
    versions: dict[str, str]
    corpus: str  # its fingerprint
    heldout: SourcePerplexity | None


NO_DETAILS = CardDetails()


@dataclass(frozen=True)
class Card:
    """A model card; `text` returns README.md."""

    pretrained: PretrainedBiLm
    name: str
    details: CardDetails = NO_DETAILS
    training: TrainingFacts | None = None

    def text(self) -> str:
        """Return the card as Markdown, with its metadata in front."""
        name = self.details.name or self.name
        parts = [
            _front_matter(self.details),
            f"# {name}",
            self.details.summary or "A bidirectional language model (ELMo) in the format of bilm.",
            _example(name),
            "## Model",
            _table(("", ""), self._model_rows()),
            "## Training data",
            *self._data_parts(),
            "## Training",
            *self._training_parts(),
            "## Evaluation",
            *self._evaluation_parts(),
            "## Intended use",
            self.details.intended_use or _DEFAULT_USE,
            "## Limits",
            "\n".join(f"- {limit}" for limit in self.details.limits or _DEFAULT_LIMITS),
        ]
        return "\n\n".join(parts) + "\n"

    def _model_rows(self) -> Iterator[tuple[str, str]]:
        model = self.pretrained.model
        config, lstm = model.config, model.config.lstm
        yield "parameters", f"{sum(p.numel() for p in model.parameters()):,}"
        if config.characters is not None:
            filters = sum(count for _, count in config.characters.filters)
            yield (
                "token encoder",
                f"character CNN with {filters:,} filters; highway layers: "
                f"{config.characters.num_highway}",
            )
        else:
            yield "token encoder", "word embeddings"
        yield (
            "LSTMs",
            f"{lstm.num_layers} layers of {lstm.dim:,} units projected to {lstm.projection_dim}, "
            + ("in both directions" if config.bidirectional else "forward only"),
        )
        width = lstm.projection_dim * config.num_directions
        yield "vectors", f"{lstm.num_layers + 1} layers of {width} values per word"
        words = f"{model.vocabulary_size:,} words" if model.vocabulary_size is not None else ""
        yield "softmax", words if model.softmax is not None else "not included"
        tokenizer = self.pretrained.tokenizer
        name = "unknown" if tokenizer is None else json.dumps(tokenizer.spec.to_json())
        yield "tokenizer", name if tokenizer is None else f"`{name}`"

    def _data_parts(self) -> Iterator[str]:
        sources = self.details.sources
        if not sources and self.training is None:
            yield NOT_STATED
        if sources:
            rows = [
                (
                    source.name,
                    "" if source.words is None else f"{source.words:,}",
                    source.license,
                    source.attribution,
                    "" if source.sha256 is None else f"`{source.sha256}`",
                )
                for source in sources
            ]
            yield _table(("source", "words", "license", "attribution", "SHA-256"), rows)
        if self.details.preparation is not None:
            yield self.details.preparation
        if self.training is not None:
            yield f"Fingerprint of the corpus: `{self.training.corpus}`"

    def _training_parts(self) -> Iterator[str]:
        facts = self.training
        if facts is None:
            yield NOT_STATED
            return
        versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
        yield _table(
            ("", ""),
            [
                ("steps", f"{facts.steps:,}"),
                ("words read per direction, with sentence ends", f"{facts.words:,}"),
                ("time", f"{facts.hours:.1f} hours"),
                ("hardware", facts.hardware),
                ("versions", versions),
            ],
        )
        settings = {k: v for k, v in facts.settings.items() if k in ("model", "train", "deepspeed")}
        train = {k: v for k, v in settings["train"].items() if k not in ("output_dir", "init_from")}
        sections = {**settings, "train": train}.items()
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in sections)
        text = f"```json\n{{\n{lines}\n}}\n```"
        yield f"<details><summary>Configuration</summary>\n\n{text}\n\n</details>"

    def _evaluation_parts(self) -> Iterator[str]:
        rows = list(self.details.evaluation)
        if self.training is not None and self.training.heldout is not None and not rows:
            rows.append(self.training.heldout)
        if rows:
            yield "Perplexity on held-out text with the full softmax; the mean is geometric."
            yield _table(
                ("text", "mean", "forward", "backward", "unknown words", "predictions"),
                [_perplexity_row(row) for row in rows],
            )
        if self.details.results is not None:
            yield self.details.results
        if not rows and self.details.results is None:
            yield NOT_STATED


def _example(name: str) -> str:
    lines = [
        "from bilm import Embedder",
        "",
        f"embedder = Embedder.from_pretrained({json.dumps(name)})",
    ]
    lines.append('layers = embedder.embed([["The", "first", "sentence", "."]])[0]')
    return "\n".join(["```python", *lines, "```"])


def _front_matter(details: CardDetails) -> str:
    """Return the metadata that hubs read, as YAML; JSON strings are YAML strings."""
    lines = ["library_name: bilm", "pipeline_tag: feature-extraction"]
    lines += ["tags:", "- elmo", "- bilm", "- contextual-word-vectors"]
    if details.license is not None:
        lines.append(f"license: {json.dumps(details.license)}")
    if details.language:
        lines += ["language:", *(f"- {json.dumps(language)}" for language in details.language)]
    return "\n".join(["---", *lines, "---"])


def _perplexity_row(row: SourcePerplexity) -> tuple[str, ...]:
    values = (row.perplexity, row.forward, row.backward)
    figures = ("" if value is None else f"{value:.1f}" for value in values)
    return (row.name, *figures, f"{row.unknown_share:.1%}", f"{row.predictions:,}")


def _table(header: Sequence[str], rows: Any) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
