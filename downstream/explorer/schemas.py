"""The bodies of requests and answers, from which the OpenAPI description is made.

Unknown fields are rejected. The limits on words and characters depend on the settings of the
service, so `service.py` checks them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_COUNT = 100  # predictions or neighbours in an answer
MAX_WEIGHT = 1e3  # of a layer, so that no sum overflows


def _encodable(text: str) -> str:
    """Reject lone surrogates, which JSON can express, but no answer can contain."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as e:
        raise ValueError(f"character {e.start} is a lone surrogate; send valid Unicode") from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]
Sentence = Annotated[
    Text | list[Text],
    Field(description="raw text, which the model's tokenizer splits, or a list of words"),
]
Weights = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(max_length=64)]
LayerChoice = Annotated[
    Literal["all", "average", "top"] | Weights,
    Field(description="all layers, their average, the top layer, or one weight per layer"),
]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
RunNumber = Annotated[int, Path(ge=0, le=1 << 20, description="place in the list of runs")]
Position = Annotated[int, Field(ge=0, le=1 << 20, description="index of a word, from 0")]


class Request(BaseModel):
    """The base class of requests."""

    model_config = ConfigDict(extra="forbid", strict=True)


class EmbedRequest(Request):
    """Sentences to embed, and the form of the vectors, as in `bilm.Output`."""

    sentences: Annotated[list[Sentence], Field(min_length=1)]
    layers: LayerChoice = "all"
    pool: Literal["none", "mean", "max", "mean_max"] = "none"
    dtype: Literal["float32", "float16"] = "float32"


class EmbeddedSentence(BaseModel):
    """The words of a sentence and its vectors, nested as the shape states."""

    words: list[str]
    shape: list[int]
    vectors: list[float] = Field(description="the values in row-major order")


class EmbedAnswer(BaseModel):
    """One entry per sentence."""

    sentences: list[EmbeddedSentence]


class ScoreRequest(Request):
    """Sentences to score."""

    sentences: Annotated[list[Sentence], Field(min_length=1)]


class ScoredSentence(BaseModel):
    """Surprisals in nats. `backward` and `combined` are None for a model with one direction."""

    words: list[str]
    is_unknown: list[bool]
    forward: list[float]
    backward: list[float] | None
    combined: list[float] | None = Field(
        description='by the normalized product of both directions, as /v1/predict with "both"'
    )
    boundaries: list[float]
    perplexity: dict[str, float]


class ScoreAnswer(BaseModel):
    """One entry per sentence, and the perplexities of all together."""

    sentences: list[ScoredSentence]
    perplexity: dict[str, float]


class PredictRequest(Request):
    """A position of a sentence; the word that is there has no effect."""

    sentence: Sentence
    position: Position
    count: Count = 10
    directions: Annotated[
        list[Literal["forward", "backward", "both"]], Field(min_length=1, max_length=3)
    ] = ["forward", "backward", "both"]


class Prediction(BaseModel):
    """A word and its probability."""

    word: str
    probability: float


class PredictAnswer(BaseModel):
    """The most likely words by direction."""

    words: list[str]
    predictions: dict[str, list[Prediction]]


class NeighboursRequest(Request):
    """A word of a sentence, and what to find."""

    sentence: Sentence
    position: Position
    layers: LayerChoice = "all"
    count: Count = 10
    scope: Literal["word", "all"] = Field("word", description="occurrences of this word, or of all")
    map: bool = Field(False, description="also return a map of the occurrences of this word")


class NeighbourEntry(BaseModel):
    """An occurrence: its words, the position of the word among them, and its cosine."""

    row: int
    cosine: float
    words: list[str]
    place: int


class MapPoint(BaseModel):
    """An occurrence on the map."""

    row: int
    x: float
    y: float
    words: list[str]
    place: int


class OccurrenceMap(BaseModel):
    """Occurrences on the first two principal components; the query is the last point (row -1)."""

    points: list[MapPoint]
    variance: float


class LayerNeighbours(BaseModel):
    """The neighbours in one layer or mix."""

    layer: str
    neighbours: list[NeighbourEntry]
    map: OccurrenceMap | None


class NeighboursAnswer(BaseModel):
    """The neighbours in each chosen layer."""

    words: list[str]
    num_occurrences: int
    layers: list[LayerNeighbours]


class ClassifyRequest(Request):
    """Texts to classify."""

    texts: Annotated[list[Text], Field(min_length=1)]
    effects: bool = Field(False, description="also compute the effect of each word")


class ClassifiedText(BaseModel):
    """The probability of each class, and how much each word matters."""

    label: str
    probabilities: dict[str, float]
    words: list[str]
    weights: list[float] | None = Field(description="the attention, if the head has attention")
    effects: list[float] | None = Field(
        description="the probability of the class minus its probability without the word; None for "
        "one word and for long texts"
    )


class ClassifyAnswer(BaseModel):
    """One entry per text."""

    texts: list[ClassifiedText]


class TagRequest(Request):
    """Texts to tag; each is one sentence."""

    texts: Annotated[list[Text], Field(min_length=1)]


class TaggedWordEntry(BaseModel):
    """A word, its range of characters in the text, and its tag."""

    word: str
    start: int
    end: int
    tag: str


class SpanEntry(BaseModel):
    """A typed range of characters."""

    type: str
    start: int
    end: int
    text: str


class TaggedTextEntry(BaseModel):
    """The words of a text and its spans; plain tags have no spans."""

    words: list[TaggedWordEntry]
    spans: list[SpanEntry]


class TagAnswer(BaseModel):
    """One entry per text."""

    texts: list[TaggedTextEntry]


class ExampleEntry(BaseModel):
    """A sentence of the index, and the position of a frequent word in it."""

    words: list[str]
    place: int


class ModelDescription(BaseModel):
    """What the service can do."""

    model: str
    num_layers: int
    dim: int
    layer_names: list[str]
    has_tokenizer: bool
    can_score: bool
    index_words: int | None
    index_example: ExampleEntry | None
    classes: list[str] | None
    tags: list[str] | None
    runs: list[str]


class RunSeries(BaseModel):
    """The metrics of a run: lists of steps and values by name."""

    name: str
    series: dict[str, list[list[float]]]


class ErrorAnswer(BaseModel):
    """Why a request was rejected."""

    detail: str
