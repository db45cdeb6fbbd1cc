// The cosine of each pair of words of two sentences, by layer or mix.

import { embed, reporter, sentenceOf } from "./api.js";
import { clamp, el, sentenceForm } from "./dom.js";
import { layerChoice } from "./mix.js";

const FIRST = "The bank of the river was flooded .";
const SECOND = "The bank lends money to the poor .";

// The unit vector of each word in a mix of layers.
function unitVectors({ shape: [layers, words, dim], values }, weights) {
  return Array.from({ length: words }, (_, word) => {
    const vector = new Float64Array(dim);
    for (let layer = 0; layer < layers; layer++) {
      const start = (layer * words + word) * dim;
      if (weights[layer] === 0) continue;
      for (let i = 0; i < dim; i++) vector[i] += weights[layer] * values[start + i];
    }
    const norm = Math.hypot(...vector) || 1;
    return vector.map((value) => value / norm);
  });
}

function product(first, second) {
  return first.reduce((sum, value, i) => sum + value * second[i], 0);
}

export function compareView(model) {
  const report = reporter();
  let sentences = null;
  const place = el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Cosines" });
  const layers = layerChoice("compare-layer", model, draw);

  function draw() {
    if (!sentences) return;
    const chosen = layers.current();
    const weights =
      chosen.kind === "mix"
        ? chosen.weights
        : model.layer_names.map((_, i) => Number(i === chosen.layer));
    const [first, second] = sentences.map((sentence) => unitVectors(sentence, weights));
    const head = sentences[1].words.map((word) => el("th", { scope: "col" }, word));
    const rows = first.map((vector, i) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, sentences[0].words[i]),
        second.map((other) => {
          const cosine = product(vector, other);
          return el("td", { heat: clamp(cosine).toFixed(3) }, cosine.toFixed(2));
        }),
      ),
    );
    place.replaceChildren(
      el(
        "table",
        { class: "heat" },
        el("thead", {}, el("tr", {}, el("td", {}), head)),
        el("tbody", {}, rows),
      ),
    );
  }

  function submit(...texts) {
    return report(async (isLast) => {
      const answer = await embed(texts.map((text) => sentenceOf(model, text)));
      if (!isLast()) return;
      sentences = answer;
      draw();
    });
  }

  submit(FIRST, SECOND);
  const labels = ["First sentence", "Second sentence"];
  return el(
    "div",
    {},
    sentenceForm("compare", labels, [FIRST, SECOND], "Compare", submit),
    layers.element,
    place,
  );
}
