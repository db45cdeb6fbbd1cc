from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the service needs: pip install 'bilm[serve]'")

from fastapi.testclient import TestClient
from safetensors.numpy import load as load_safetensors

from bilm.embedding.embedder import Embedder
from bilm.embedding.output import Output
from bilm.embedding.scorer import Scorer
from downstream.explorer.api import AppSettings, create_app
from downstream.explorer.limits import RequestLimits
from downstream.explorer.runs import RunCurves
from tests.bilm.embedding.elmo_models import golden, tiny
from tests.downstream.explorer.small_models import load, make_index

SENTENCES = [["the", "bank", "floods", "."], ["hello"], ["unheard", "bank", "!"]]
BASE = "http://127.0.0.1:8765"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    directory = tmp_path_factory.mktemp("api")
    lines = [
        {"event": "train", "step": 1, "loss_forward": 3.0, "words_per_second": 10},
        {"event": "heldout", "step": 1, "perplexity": 20.0, "perplexity_forward": 21.0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"event": "train", "st'
    (directory / "metrics.jsonl").write_text(text, encoding="utf-8")
    loaded = load(make_index(directory, tiny()), runs=(RunCurves(directory),))
    with TestClient(create_app(loaded), base_url=BASE, raise_server_exceptions=False) as own:
        yield own


def post(client: TestClient, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    "output",
    [
        Output(),
        Output("top"),
        Output("average", "mean"),
        Output([0.2, 0.3, 0.5], "mean_max"),
        Output("all", "max"),
    ],
)
def test_vectors_equal_those_of_the_embedder(client: TestClient, output: Output) -> None:
    layers = output.layers if isinstance(output.layers, str) else list(output.layers)
    body = {"sentences": [*SENTENCES, []], "layers": layers, "pool": output.pool}
    answer = post(client, "/v1/embed", **body)
    expected = Embedder(tiny(), device="cpu").embed([*SENTENCES, []], output=output)
    for entry, array in zip(answer["sentences"], expected, strict=True):
        assert entry["shape"] == list(array.shape)
        np.testing.assert_allclose(entry["vectors"], array.reshape(-1), atol=1e-6)
    headers = {"Accept": "application/octet-stream"}
    binary = client.post("/v1/embed", json=body, headers=headers)
    for i, array in load_safetensors(binary.content).items():
        np.testing.assert_allclose(array, expected[int(i)], atol=1e-6)


def test_accepts_raw_text(client: TestClient) -> None:
    answer = post(client, "/v1/embed", sentences=["the bank floods ."], layers="top", pool="mean")
    assert answer["sentences"][0]["words"] == SENTENCES[0]


def test_scores_equal_those_of_the_scorer(client: TestClient) -> None:
    answer = post(client, "/v1/score", sentences=SENTENCES)
    scorer = Scorer(tiny(), device="cpu")
    for entry, score in zip(
        answer["sentences"], scorer.score(SENTENCES, combined=True), strict=True
    ):
        np.testing.assert_allclose(entry["forward"], score.forward, atol=1e-5)
        np.testing.assert_allclose(entry["backward"], score.backward, atol=1e-5)
        np.testing.assert_allclose(entry["combined"], score.combined, atol=1e-5)  # type: ignore[arg-type]
        assert entry["is_unknown"] == score.is_unknown.tolist()
    expected = scorer.perplexity(SENTENCES)
    assert answer["perplexity"]["mean"] == pytest.approx(expected.mean, rel=1e-5)
    assert answer["perplexity"]["backward"] == pytest.approx(expected.by_direction["backward"])


def test_predictions_equal_those_of_the_scorer(client: TestClient) -> None:
    answer = post(client, "/v1/predict", sentence=SENTENCES[0], position=1, count=4)
    scorer = Scorer(tiny(), device="cpu")
    for direction in ("forward", "backward", "both"):
        (expected,) = scorer.substitutes([SENTENCES[0]], [1], 4, direction)  # type: ignore[arg-type]
        found = answer["predictions"][direction]
        assert [entry["word"] for entry in found] == [word for word, _ in expected]
        probabilities = [entry["probability"] for entry in found]
        np.testing.assert_allclose(probabilities, [p for _, p in expected], atol=1e-6)


def test_finds_neighbours_in_each_layer(client: TestClient) -> None:
    body = {"sentence": "the bank floods .", "position": 1, "count": 3, "map": True}
    answer = post(client, "/v1/neighbours", **body)
    assert len(answer["layers"]) == 3
    for layer in answer["layers"]:
        assert len(layer["neighbours"]) == 3
        for near in layer["neighbours"]:
            assert near["words"][near["place"]].lower() == "bank"
            assert near["words"] != SENTENCES[0]
        assert len(layer["map"]["points"]) == answer["num_occurrences"] + 1
        assert layer["map"]["points"][-1]["row"] == -1
    cosines = [near["cosine"] for near in answer["layers"][2]["neighbours"]]
    assert cosines == sorted(cosines, reverse=True)
    mix = post(client, "/v1/neighbours", **{**body, "layers": [0.2, 0.3, 0.5], "scope": "all"})
    assert [layer["layer"] for layer in mix["layers"]] == ["mix 0.20, 0.30, 0.50"]


def test_returns_training_curves(client: TestClient) -> None:
    answer = client.get("/v1/runs/0").json()
    assert answer["series"]["words per second"] == [[1.0, 10.0]]
    assert answer["series"]["held-out perplexity, forward"] == [[1.0, 21.0]]
    assert client.get("/v1/runs/1").status_code == 422


def test_describes_itself(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    model = client.get("/v1/model").json()
    assert (model["num_layers"], model["can_score"], model["classes"]) == (3, True, None)
    assert model["has_tokenizer"]
    example = model["index_example"]
    assert example["words"][example["place"]] == "bank"  # its most frequent word of four letters
    client.post("/v1/score", json={"sentences": ["the bank"]})
    text = client.get("/metrics").text
    assert 'bilm_requests_total{route="/v1/score",status="200"}' in text
    assert "bilm_batches_total" in text
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/embed", "/v1/score", "/v1/predict", "/v1/neighbours", "/v1/classify"} <= set(paths)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/embed", {"sentences": []}, 422, "at least 1 item"),
        ("/v1/embed", {"sentences": ["a"] * 65}, 422, "65 sentences; the limit is 64"),
        ("/v1/embed", {"sentences": [["a"] * 2049]}, 422, "2,049 words; the limit is 2,048"),
        ("/v1/embed", {"sentences": ["a" * 70000]}, 422, "70,000 characters"),
        ("/v1/embed", {"sentences": ["a"], "layers": [1.0]}, 422, "has 1 weights"),
        ("/v1/embed", {"sentences": ["a"], "layers": [1e30, 0.0, 0.0]}, 422, "a weight above"),
        ("/v1/embed", {"sentences": ["a"], "layer": "top"}, 422, "not permitted"),
        ("/v1/embed", {"sentences": [["a b"]]}, 422, "no spaces"),
        ("/v1/embed", {"sentences": [[""]]}, 422, "must have characters"),
        ("/v1/predict", {"sentence": "a", "position": 1}, 422, "position is 1"),
        ("/v1/predict", {"sentence": "a", "position": 0, "count": 101}, 422, "less than or equal"),
        ("/v1/classify", {"texts": ["a"]}, 404, "no classifier"),
        ("/v1/tag", {"texts": ["a"]}, 404, "no tagger"),
        ("/v1/nothing", {}, 404, "Not Found"),
    ],
)
def test_rejects_invalid_requests(
    client: TestClient, path: str, body: Any, status: int, message: str
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status
    assert message in answer.json()["detail"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"sentences": [' + b"9" * 5000 + b"]}",
        b'{"sentences": ["\\ud800"]}',
        b'{"sentences": [["\\ud800"]]}',
        b'{"sentences": ["a"], "layers": [NaN, 0, 0]}',
        b'{"sentences": ["a"], "layers": [1e999, 0, 0]}',
        b'{"sentences": ["\\u0000"]}',
    ],
    ids=range(10),
)
def test_answers_malformed_bodies_without_failing(client: TestClient, content: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    for path in ("/v1/embed", "/v1/score"):
        answer = client.post(path, content=content, headers=headers)
        assert answer.status_code in (200, 400, 422), answer.text
        assert "Traceback" not in answer.text


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", ""])
def test_bodies_must_be_declared_as_json(client: TestClient, content_type: str) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    for path in ("/v1/embed", "/v1/score"):
        answer = client.post(path, content=b'{"sentences": [["a"]]}', headers=headers)
        assert answer.status_code == 422, answer.text


def test_invalid_fields_are_named(client: TestClient) -> None:
    for path in ("/v1/embed", "/v1/score"):
        answer = client.post(path, json={"sentences": [["a"]], "unknown": 1})
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("body.unknown: "), answer.text


def test_the_description_states_the_body_of_every_route(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    posts = [own["post"] for own in paths.values() if "post" in own]
    assert len(posts) == 6
    assert all("application/json" in post["requestBody"]["content"] for post in posts)
    embed = paths["/v1/embed"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(embed["properties"]) == {"sentences", "layers", "pool", "dtype"}


def test_rejects_large_bodies() -> None:
    settings = AppSettings(limits=RequestLimits(max_body_bytes=100))
    with TestClient(create_app(load(), settings), base_url=BASE) as client:
        answer = client.post("/v1/embed", content=b"x" * 101)
        assert (answer.status_code, answer.json()["detail"]) == (
            413,
            "the body is larger than 100 bytes",
        )
        streamed = client.post("/v1/embed", content=(b"x" * 60 for _ in range(3)))
        assert streamed.status_code == 413


def test_explains_a_missing_softmax_and_tokenizer() -> None:
    with TestClient(create_app(load(pretrained=golden())), base_url=BASE) as client:
        assert client.get("/v1/model").json()["can_score"] is False
        answer = client.post("/v1/score", json={"sentences": [["a"]]})
        assert (answer.status_code, "no softmax" in answer.text) == (404, True)
        answer = client.post("/v1/embed", json={"sentences": ["a"]})
        assert (answer.status_code, "no tokenizer" in answer.text) == (422, True)


def test_unexpected_errors_have_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: RunCurves) -> None:
        raise RuntimeError("a secret path")

    monkeypatch.setattr(RunCurves, "series", fail)
    app = create_app(load(runs=(RunCurves(Path("somewhere")),)))
    with TestClient(app, base_url=BASE, raise_server_exceptions=False) as client:
        answer = client.get("/v1/runs/0")
    assert answer.status_code == 500
    assert "secret" not in answer.text
