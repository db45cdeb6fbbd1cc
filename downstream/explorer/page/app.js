// The tabs, and the description of the model.

import { adoptToken, get, reporter } from "./api.js";
import { classifierView } from "./classifier.js";
import { compareView } from "./compare.js";
import { contextView } from "./context.js";
import { el } from "./dom.js";
import { runsView } from "./runs.js";
import { sentenceView } from "./sentence.js";

const VIEWS = [
  ["sentence", "Sentence", sentenceView],
  ["context", "Word in context", contextView],
  ["compare", "Compare", compareView],
  ["classifier", "Classifier", classifierView],
  ["runs", "Runs", runsView],
];

function show(name) {
  for (const [key] of VIEWS) {
    const isShown = key === name;
    const tab = document.getElementById(`tab-${key}`);
    tab.setAttribute("aria-selected", String(isShown));
    tab.tabIndex = isShown ? 0 : -1;
    document.getElementById(`view-${key}`).hidden = !isShown;
  }
  history.replaceState(null, "", `#${name}`);
}

function moveFocus(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const place = VIEWS.findIndex(([key]) => event.target.id === `tab-${key}`);
  if (!step || place < 0) return;
  const [name] = VIEWS[(place + step + VIEWS.length) % VIEWS.length];
  show(name);
  document.getElementById(`tab-${name}`).focus();
}

function count(model) {
  return model.index_words.toLocaleString("en");
}

function describe(model) {
  const index = model.index_words === null ? "no index" : `${count(model)} words indexed`;
  return `${model.model}: ${model.num_layers} layers of ${model.dim}, ${index}`;
}

async function start() {
  adoptToken();
  const model = await get("/v1/model");
  document.getElementById("model").textContent = describe(model);
  const tabs = document.getElementById("tabs");
  for (const [key, title, view] of VIEWS) {
    tabs.append(
      el(
        "button",
        { id: `tab-${key}`, role: "tab", "aria-controls": `view-${key}`, onclick: () => show(key) },
        title,
      ),
    );
    const panel = { id: `view-${key}`, role: "tabpanel", "aria-labelledby": `tab-${key}` };
    document.getElementById("views").append(el("section", panel, view(model)));
  }
  tabs.addEventListener("keydown", moveFocus);
  const asked = location.hash.slice(1);
  show(VIEWS.some(([key]) => key === asked) ? asked : "sentence");
}

reporter()(start);
