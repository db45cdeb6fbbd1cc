// The probabilities of a trained classifier with the attention to each word, and tags of words.

import { post, reporter } from "./api.js";
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
  const classifier = ["classifier", "Text", "Classify", classify];
  const tagger = ["tagger", "Sentence to tag", "Tag", tag];
  return el(
    "div",
    {},
    model.classes === null ? null : form(...classifier),
    model.tags === null ? null : form(...tagger),
  );
}

// A form for one text, and the description of the answer to it.
function form(id, label, button, describe) {
  const report = reporter();
  const result = el("div", { id: `${id}-result`, "aria-live": "polite" });
  const submit = (text) =>
    report(async (isLast) => {
      const parts = await describe(text);
      if (isLast()) result.replaceChildren(...parts);
    });
  return el("section", {}, sentenceForm(id, [label], [""], button, submit), result);
}

async function tag(text) {
  const answer = await post("/v1/tag", { texts: [text] });
  const { words, spans } = answer.texts[0];
  const shown = words.map(({ word, tag: name }) => chip(word, name, name === "O" ? 0 : 0.5));
  const rows = spans.map((span) => el("li", {}, el("strong", {}, span.type), ` ${span.text}`));
  const list = rows.length ? [el("h2", {}, "Spans"), el("ul", {}, rows)] : [];
  return [el("h2", {}, "Tags"), el("div", { class: "words" }, shown), ...list];
}

async function classify(text) {
  const answer = await post("/v1/classify", { texts: [text], effects: true });
  const { label, probabilities, words, weights, effects } = answer.texts[0];
  const sorted = Object.entries(probabilities).sort(([, a], [, b]) => b - a);
  const parts = [el("h2", {}, `Class: ${label}`), ...sorted.map(bar)];
  if (weights !== null) {
    const largest = Math.max(...weights);
    const shown = words.map((word, i) =>
      chip(word, `${(100 * weights[i]).toFixed(0)}%`, weights[i] / largest),
    );
    parts.push(el("h2", {}, "Attention"), el("div", { class: "words", id: "attention" }, shown));
  }
  return [...parts, ...effectParts(label, words, effects)];
}

// The words with the change of the probability when the head does not read them.
function effectParts(label, words, effects) {
  if (effects === null) {
    const reason = "The effect of each word is computed for texts of 2 to 100 words.";
    return [el("p", { class: "note" }, reason)];
  }
  const largest = Math.max(...effects.map(Math.abs)) || 1;
  const shown = words.map((word, i) => {
    const sign = effects[i] < 0 ? "−" : "+";
    const points = `${sign}${Math.abs(100 * effects[i]).toFixed(1)}`;
    return chip(word, points, Math.abs(effects[i]) / largest, effects[i] < 0);
  });
  const note = `Percentage points that the probability of “${label}” loses without the word.`;
  return [
    el("h2", {}, "Effect of each word"),
    el("p", { class: "note" }, note),
    el("div", { class: "words", id: "effects" }, shown),
  ];
}

function chip(word, caption, heat, isAgainst = false) {
  const attributes = {
    class: isAgainst ? "word against" : "word",
    heat: clamp(heat).toFixed(3),
  };
  return el("span", attributes, word, el("small", {}, caption));
}

function bar([name, probability]) {
  return el(
    "div",
    { class: "bar" },
    el("span", {}, name),
    el("meter", { min: 0, max: 1, value: probability, "aria-label": name }),
    el("span", { class: "number" }, `${(100 * probability).toFixed(1)}%`),
  );
}
