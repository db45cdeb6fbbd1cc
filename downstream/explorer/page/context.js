// The nearest occurrences of a word in an indexed text, by layer, and a map of its occurrences.

import { post, reporter, sentenceOf } from "./api.js";
import { choice, context, el, sentenceForm } from "./dom.js";
import { drawMap } from "./map.js";
import { layerChoice } from "./mix.js";

export function contextView(model) {
  if (model.index_words === null) {
    return el(
      "p",
      {},
      "There is no index to search. Start the explorer with a text: ",
      el("code", {}, "bilm explore --text FILE"),
    );
  }
  const report = reporter();
  const state = { words: [], chosen: null, answer: null, mix: null, scope: "word" };
  const words = el("div", { class: "words", role: "group", "aria-label": "Words" });
  const lists = el("div", { id: "neighbours", class: "columns" });
  const place = el("div", { id: "map" });
  const layers = layerChoice("context-layer", model, () => update());

  function choose(position) {
    Object.assign(state, { chosen: position, answer: null, mix: null });
    drawWords();
    return update();
  }

  function drawWords() {
    words.replaceChildren(
      ...state.words.map((word, i) =>
        el(
          "button",
          {
            type: "button",
            class: "word",
            "aria-pressed": String(i === state.chosen),
            onclick: () => choose(i).then(() => words.children[i].focus()),
          },
          word,
        ),
      ),
    );
  }

  function ask(chosenLayers) {
    return post("/v1/neighbours", {
      sentence: state.words,
      position: state.chosen,
      layers: chosenLayers,
      scope: state.scope,
      map: true,
    });
  }

  function update() {
    if (state.chosen === null) return Promise.resolve();
    const choiceNow = layers.current();
    return report(async (isLast) => {
      const answer = state.answer ?? (await ask("all"));
      const mix = choiceNow.kind === "mix" ? await ask(choiceNow.weights) : null;
      if (!isLast()) return;
      Object.assign(state, { answer, mix });
      draw(choiceNow);
    });
  }

  function draw(choiceNow) {
    const shown = [...(state.mix?.layers ?? []), ...state.answer.layers];
    const active = choiceNow.kind === "mix" ? 0 : choiceNow.layer;
    const select = drawMap(place, shown[active], state.answer.num_occurrences, relate);
    lists.replaceChildren(...shown.map((layer, i) => list(layer, i === active, select)));
  }

  function relate(row) {
    for (const item of lists.querySelectorAll("li")) {
      item.classList.toggle("related", item.dataset.row === String(row));
    }
  }

  function submit(text) {
    words.inert = true; // the words of the sentence before cannot be chosen any more
    const done = report(async (isLast) => {
      const body = { sentences: [sentenceOf(model, text)], layers: "top", pool: "mean" };
      const answer = await post("/v1/embed", body);
      if (!isLast()) return;
      const own = { words: answer.sentences[0].words, chosen: null, answer: null, mix: null };
      Object.assign(state, own);
      lists.replaceChildren();
      place.replaceChildren();
      drawWords();
    });
    return done.finally(() => {
      words.inert = false;
    });
  }

  const example = model.index_example;
  state.words = example.words;
  choose(example.place);
  const scopes = [["word", "this word"], ["all", "all words"]];
  return el(
    "div",
    {},
    sentenceForm("context", ["Sentence"], [example.words.join(" ")], "Split into words", submit),
    el("p", { class: "note" }, "Choose a word to see its nearest occurrences in the text."),
    words,
    el(
      "div",
      { class: "row" },
      layers.element,
      choice("Search among", "scope", scopes, state.scope, (scope) => {
        Object.assign(state, { scope, answer: null, mix: null });
        update();
      }),
    ),
    el("div", { class: "beside" }, lists, place),
  );
}

function list(layer, isChosen, select) {
  const items = layer.neighbours.map((near) =>
    el(
      "li",
      { "data-row": near.row, onmouseenter: () => select(near.row) },
      el("span", { class: "number" }, near.cosine.toFixed(3)),
      context(near.words, near.place),
    ),
  );
  const isEqual = layer.neighbours.length && layer.neighbours.every((near) => near.cosine > 0.99999);
  return el(
    "section",
    { class: isChosen ? "chosen" : false },
    el("h3", {}, layer.layer),
    isEqual ? el("p", { class: "note" }, "All these vectors are equal in this layer.") : null,
    items.length ? el("ol", { class: "neighbours" }, items) : el("p", {}, "No other occurrences."),
  );
}
