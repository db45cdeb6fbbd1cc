"""The routes of the API, /v1/...: each turns a request into calls of the service."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from safetensors.numpy import save
from starlette.responses import JSONResponse

from bilm.embedding.output import Output
from bilm.embedding.scores import SentenceScore
from downstream.explorer import schemas
from downstream.explorer.neighbours import Query, find_neighbours
from downstream.explorer.sentences import RequestError, check_position
from downstream.explorer.service import PredictionJob, Service, formed, layer_weights
from downstream.reports.pages import layer_name

BINARY = "application/octet-stream"
JSON = "application/json"

Body = TypeVar("Body", bound=schemas.Request)

_MAX_FAST_BYTES = 1 << 19  # of vectors that take less than a millisecond to write

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorAnswer, "description": description}
    for status, description in {
        400: "the body is not valid JSON",
        401: "the token is missing or wrong",
        403: "the request comes from a page of another site",
        404: "the service was started without what the request needs",
        408: "the body arrived too slowly",
        413: "the body is too large",
        421: "the Host header does not name this service",
        422: "a field is invalid, or a limit is exceeded",
        503: "the queue is full; Retry-After states when to try again",
    }.items()
}


def make_router(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1", responses=_ERRORS, route_class=APIRoute)
    routes = _Routes(service)
    router.get("/model")(routes.model)
    router.post(
        "/embed",
        response_model=schemas.EmbedAnswer,
        responses={200: {"content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}}},
        openapi_extra=_described_body(schemas.EmbedRequest),
    )(routes.embed)
    router.post("/score")(routes.score)
    router.post("/predict")(routes.predict)
    router.post("/neighbours")(routes.neighbours)
    router.post("/classify")(routes.classify)
    router.post("/tag")(routes.tag)
    router.get("/runs/{number}")(routes.run)
    return router


class _Routes:
    """The functions of the routes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loaded = service.loaded

    async def model(self) -> schemas.ModelDescription:
        """Describe the model, and what the service was started with."""
        loaded = self._loaded
        num_layers = loaded.embedder.num_layers
        example = None if loaded.index is None else loaded.index.example
        return schemas.ModelDescription(
            model=loaded.name,
            num_layers=num_layers,
            dim=loaded.embedder.dim,
            layer_names=[layer_name(i) for i in range(num_layers)],
            has_tokenizer=loaded.pretrained.tokenizer is not None,
            can_score=loaded.scorer is not None,
            index_words=None if loaded.index is None else len(loaded.index),
            index_example=None
            if example is None
            else schemas.ExampleEntry(words=list(example.words), place=example.place),
            classes=None if loaded.classifier is None else list(loaded.classifier.classes),
            tags=None if loaded.tagger is None else list(loaded.tagger.labels),
            runs=[run.name for run in loaded.runs],
        )

    async def embed(self, raw: Request) -> Response:
        """Return the vectors of sentences as JSON, or as a file.

        With `Accept: application/octet-stream`, the answer is a safetensors file with the tensors
        "0", "1", ..., and the words as JSON in its metadata.
        """
        request = await _body(raw, schemas.EmbedRequest)
        accept = raw.headers.get("accept", "*/*")
        sentences = await self._service.parse(request.sentences)
        output = self._output(request)
        layers = await self._service.layers(sentences)
        render = _binary if BINARY in accept else _json
        is_fast = render is _binary and sum(own.nbytes for own in layers) <= _MAX_FAST_BYTES
        return await self._service.in_thread(
            lambda: render(sentences, [formed(own, output) for own in layers]), is_fast
        )

    async def score(self, request: schemas.ScoreRequest) -> schemas.ScoreAnswer:
        """Return the surprisal of each word in both directions, and perplexities."""
        sentences = await self._service.parse(request.sentences)
        scores = await self._service.scores(sentences)
        totals = np.sum([score.totals for score in scores], axis=0)
        num_predictions = sum(len(score.words) + 1 for score in scores)
        return schemas.ScoreAnswer(
            sentences=[_scored(score) for score in scores],
            perplexity=_perplexities(totals / num_predictions),
        )

    async def predict(self, request: schemas.PredictRequest) -> schemas.PredictAnswer:
        """Return the most likely words at a position."""
        (words,) = await self._service.parse([request.sentence])
        check_position(words, request.position)
        directions = self._directions(request)
        found = await self._service.predictions(
            [PredictionJob(words, request.position, request.count, d) for d in directions]
        )
        return schemas.PredictAnswer(
            words=words,
            predictions={
                direction: [
                    schemas.Prediction(word=word, probability=probability)
                    for word, probability in substitutes
                ]
                for direction, substitutes in zip(directions, found, strict=True)
            },
        )

    async def neighbours(self, request: schemas.NeighboursRequest) -> schemas.NeighboursAnswer:
        """Return the occurrences in the indexed text that are nearest to a word in context."""
        index = self._service.index()
        (words,) = await self._service.parse([request.sentence])
        check_position(words, request.position)
        num_layers = self._loaded.embedder.num_layers
        self._check_layers(request.layers)
        weights = layer_weights(request.layers, num_layers)
        outputs = np.eye(num_layers).tolist() if weights is None else [weights]
        (layers,) = await self._service.layers([words])
        query = Query(
            words, request.position, layers, outputs, request.count, request.scope, request.map
        )
        count, found = await self._service.search(lambda: find_neighbours(index, query))
        return schemas.NeighboursAnswer(words=words, num_occurrences=count, layers=found)

    async def classify(self, request: schemas.ClassifyRequest) -> schemas.ClassifyAnswer:
        """Return the probability of each class, and how much each word matters."""
        classifier = self._service.classifier()
        explained = await self._service.probabilities(request.texts, request.effects)
        return schemas.ClassifyAnswer(
            texts=[
                schemas.ClassifiedText(
                    label=classifier.classes[int(np.argmax(text.probabilities))],
                    probabilities=dict(zip(classifier.classes, text.probabilities, strict=True)),
                    words=text.words,
                    weights=text.weights,
                    effects=text.effects,
                )
                for text in explained
            ]
        )

    async def tag(self, request: schemas.TagRequest) -> schemas.TagAnswer:
        """Return the tag of each word, and the spans."""
        tagged = await self._service.tags(request.texts)
        return schemas.TagAnswer(
            texts=[schemas.TaggedTextEntry.model_validate(asdict(text)) for text in tagged]
        )

    async def run(self, number: schemas.RunNumber) -> schemas.RunSeries:
        """Return the training curves of a run, by its place in the list of runs."""
        if number >= len(self._loaded.runs):
            raise RequestError(
                f"the run is {number}; this service has {len(self._loaded.runs)} runs, from 0"
            )
        run = self._loaded.runs[number]
        series = await self._service.in_thread(run.series)
        return schemas.RunSeries(name=run.name, series=series)

    def _directions(self, request: schemas.PredictRequest) -> list[Any]:
        """Return the distinct directions; those that the model does not have are rejected."""
        directions = list(dict.fromkeys(request.directions))
        if self._loaded.pretrained.model.config.num_directions == 1 and directions != ["forward"]:
            raise RequestError('this model has only the direction "forward"; request only that')
        return directions

    def _output(self, request: schemas.EmbedRequest) -> Output:
        self._check_layers(request.layers)
        return Output(request.layers, request.pool, request.dtype)

    def _check_layers(self, layers: str | list[float]) -> None:
        num_layers = self._loaded.embedder.num_layers
        if isinstance(layers, str):
            return
        if len(layers) != num_layers:
            raise RequestError(
                f"layers has {len(layers)} weights; this model has {num_layers} layers, including "
                "the token encoder"
            )
        if max(abs(weight) for weight in layers) > schemas.MAX_WEIGHT:
            raise RequestError(
                f"layers has a weight above {schemas.MAX_WEIGHT:g}; use smaller ones"
            )


def _described_body(kind: type[Body]) -> dict[str, Any]:
    """Return the part of the OpenAPI description that states the body of a request."""
    content = {JSON: {"schema": kind.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


async def _body(request: Request, kind: type[Body]) -> Body:
    """Parse and validate the body of a request in one call.

    FastAPI does the same for an argument of a route, in several steps that take as long as all the
    rest of a short request.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        problem = {"loc": ("header", "content-type"), "msg": f"must be {JSON}"}
        raise RequestValidationError([problem])
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as e:
        problems = e.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**problem, "loc": ("body", *problem["loc"])} for problem in problems]
        ) from None


def _binary(sentences: list[list[str]], arrays: list[npt.NDArray[Any]]) -> Response:
    """Return a safetensors file."""
    tensors = {str(i): np.ascontiguousarray(array) for i, array in enumerate(arrays)}
    return Response(save(tensors, {"words": json.dumps(sentences)}), media_type=BINARY)


def _json(sentences: list[list[str]], arrays: list[npt.NDArray[Any]]) -> Response:
    entries = [
        {"words": words, "shape": list(array.shape), "vectors": array.reshape(-1).tolist()}
        for words, array in zip(sentences, arrays, strict=True)
    ]
    return JSONResponse({"sentences": entries})


def _scored(score: SentenceScore) -> schemas.ScoredSentence:
    both = len(score.surprisals) == 2
    return schemas.ScoredSentence(
        words=list(score.words),
        is_unknown=score.is_unknown.tolist(),
        forward=score.forward.tolist(),
        backward=score.backward.tolist() if both else None,
        combined=None if score.combined is None else score.combined.tolist(),
        boundaries=score.boundaries.tolist(),
        perplexity=_perplexities(score.totals / (len(score.words) + 1)),
    )


def _perplexities(losses: Any) -> dict[str, float]:
    """Return the perplexities of mean losses (directions,), and their geometric mean."""
    named = dict(zip(("forward", "backward"), losses.tolist(), strict=False))
    named["mean"] = float(losses.mean())
    return {name: math.exp(min(loss, 700.0)) for name, loss in named.items()}
