// The probabilities of a trained classifier with the attention to each word, and tags of words.

import { post, report } from "./api.js";
import { clamp, el, sentenceForm } from "./dom.js";

export function classifierView(model) {
  if (model.classes === null && model.tags === null) {
    return el(
      "p",
      {},
      "There is no classifier. Train one with ",
      el("code", {}, "bilm tasks classify"),
      " or ",
      el("code", {}, "bilm tasks tag"),
      " and start the explorer with ",
      el("code", {}, "--classifier DIR"),
      " or ",
      el("code", {}, "--tagger DIR"),
    );
  }
  const classifier = ["classifier", "Text", "Classify", "/v1/classify", describe];
  const tagger = ["tagger", "Sentence to tag", "Tag", "/v1/tag", describeTags];
  return el(
    "div",
    {},
    model.classes === null ? null : form(...classifier),
    model.tags === null ? null : form(...tagger),
  );
}

// A form for one text, and the description of the answer to it.
function form(id, label, button, path, description) {
  const result = el("div", { id: `${id}-result`, "aria-live": "polite" });
  const submit = (text) =>
    report(async (isLast) => {
      const answer = await post(path, { texts: [text] });
      if (isLast()) result.replaceChildren(...description(answer.texts[0]));
    });
  return el("section", {}, sentenceForm(id, [label], [""], button, submit), result);
}

function describeTags({ words, spans }) {
  const shown = words.map(({ word, tag }) =>
    el("span", { class: "word", heat: tag === "O" ? 0 : 0.5 }, word, el("small", {}, tag)),
  );
  const rows = spans.map(({ type, text }) => el("li", {}, el("strong", {}, type), ` ${text}`));
  const list = rows.length ? [el("h2", {}, "Spans"), el("ul", {}, rows)] : [];
  return [el("h2", {}, "Tags"), el("div", { class: "words" }, shown), ...list];
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
