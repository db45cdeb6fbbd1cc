// The surprisal of each word of a sentence, and the predictions at a position.

import { post, reporter, sentenceOf } from "./api.js";
import { choice, clamp, el, sentenceForm } from "./dom.js";

const MAX_BITS = 16; // the surprisal with the strongest color

const DIRECTIONS = [
  ["combined", "combined"],
  ["forward", "forward"],
  ["backward", "backward"],
];

const EXAMPLE = "The bank of the river was flooded .";

const TITLES = { forward: "From the left", backward: "From the right", both: "Product" };

export function sentenceView(model) {
  if (!model.can_score) {
    return el(
      "p",
      {},
      "This model has no softmax, so it cannot compute probabilities of words. Use a run, or a ",
      "model directory that ",
      el("code", {}, "bilm export"),
      " has written from one. The published weights have none.",
    );
  }
  const report = reporter();
  const state = { direction: "combined", score: null, chosen: null };
  const words = el("div", { class: "words", role: "group", "aria-label": "Words" });
  const total = el("p", { id: "perplexity" });
  const predictions = el("div", { id: "predictions", class: "columns", "aria-live": "polite" });

  function values() {
    return state.score[state.direction] ?? state.score.forward;
  }

  function draw() {
    if (!state.score) return;
    words.replaceChildren(
      ...state.score.words.map((word, i) => {
        const bits = values()[i] / Math.LN2;
        const isUnknown = state.score.is_unknown[i];
        return el(
          "button",
          {
            type: "button",
            class: isUnknown ? "word unknown" : "word",
            title: isUnknown ? "outside the vocabulary; scored as <UNK>" : false,
            "aria-pressed": String(i === state.chosen),
            heat: clamp(bits / MAX_BITS).toFixed(3),
            onclick: () => predict(i),
          },
          word,
          el("small", {}, `${bits.toFixed(1)} bits`),
        );
      }),
    );
  }

  function predict(position) {
    state.chosen = position;
    draw();
    words.children[position].focus();
    return report(async (isLast) => {
      const directions = state.score.backward ? ["forward", "backward", "both"] : ["forward"];
      const body = { sentence: state.score.words, position, count: 10, directions };
      const answer = await post("/v1/predict", body);
      if (isLast()) predictions.replaceChildren(...directions.map((d) => table(d, answer)));
    });
  }

  function submit(text) {
    return report(async (isLast) => {
      const answer = await post("/v1/score", { sentences: [sentenceOf(model, text)] });
      if (!isLast()) return;
      Object.assign(state, { score: answer.sentences[0], chosen: null });
      const parts = Object.entries(answer.perplexity).map(([k, v]) => `${k} ${v.toFixed(2)}`);
      total.textContent = `Perplexity: ${parts.join(", ")}`;
      predictions.replaceChildren();
      draw();
    });
  }

  submit(EXAMPLE);
  return el(
    "div",
    {},
    sentenceForm("sentence", ["Sentence"], [EXAMPLE], "Score", submit),
    choice("Surprisal", "direction", DIRECTIONS, state.direction, (direction) => {
      state.direction = direction;
      draw();
    }),
    el("p", { class: "note" }, "Choose a word to see what the model predicts at its position."),
    words,
    total,
    predictions,
  );
}

function table(direction, answer) {
  const rows = answer.predictions[direction].map(({ word, probability }) =>
    el(
      "tr",
      {},
      el("td", {}, word),
      el("td", { class: "number" }, `${(100 * probability).toFixed(2)}%`),
    ),
  );
  return el(
    "section",
    { "data-direction": direction },
    el("h3", {}, TITLES[direction]),
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col" }, "word"),
          el("th", { scope: "col", class: "number" }, "probability"),
        ),
      ),
      el("tbody", {}, rows),
    ),
  );
}
