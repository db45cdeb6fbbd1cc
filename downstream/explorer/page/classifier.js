// The probabilities of a trained classifier, and the attention to each word.

import { post, report } from "./api.js";
import { clamp, el, sentenceForm } from "./dom.js";

export function classifierView(model) {
  if (model.classes === null) {
    return el(
      "p",
      {},
      "There is no classifier. Train one with ",
      el("code", {}, "bilm tasks classify"),
      " and start the explorer with ",
      el("code", {}, "bilm explore --classifier DIR"),
    );
  }
  const result = el("div", { id: "classified", "aria-live": "polite" });

  function submit(text) {
    return report(async (isLast) => {
      const answer = await post("/v1/classify", { texts: [text] });
      if (isLast()) result.replaceChildren(...describe(answer.texts[0]));
    });
  }

  const form = sentenceForm("classifier", ["Text"], [""], "Classify", submit);
  return el("div", {}, form, result);
}

function describe({ label, probabilities, words, weights }) {
  const sorted = Object.entries(probabilities).sort(([, a], [, b]) => b - a);
  const bars = sorted.map(([name, probability]) =>
    el(
      "div",
      { class: "bar" },
      el("span", {}, name),
      el("meter", { min: 0, max: 1, value: probability, "aria-label": name }),
      el("span", { class: "number" }, `${(100 * probability).toFixed(1)}%`),
    ),
  );
  const parts = [el("h2", {}, `Class: ${label}`), ...bars];
  if (weights === null) {
    const text = "Only heads with attention show which words matter.";
    return [...parts, el("p", { class: "note" }, text)];
  }
  const largest = Math.max(...weights);
  const shown = words.map((word, i) =>
    el(
      "span",
      { class: "word", heat: clamp(weights[i] / largest).toFixed(3) },
      word,
      el("small", {}, `${(100 * weights[i]).toFixed(0)}%`),
    ),
  );
  return [...parts, el("h2", {}, "Attention"), el("div", { class: "words" }, shown)];
}
