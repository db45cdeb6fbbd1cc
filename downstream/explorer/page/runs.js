// The training curves of runs, read again every few seconds while the view is shown.

import { get, reporter } from "./api.js";
import { chart } from "./chart.js";
import { el } from "./dom.js";

const SECONDS = 5;

const CHARTS = [
  ["Training loss", ["training loss, forward", "training loss, backward"]],
  [
    "Held-out perplexity",
    ["held-out perplexity", "held-out perplexity, forward", "held-out perplexity, backward"],
  ],
  ["Words per second", ["words per second"]],
];

export function runsView(model) {
  if (!model.runs.length) {
    return el(
      "p",
      {},
      "There are no runs. Start the explorer with ",
      el("code", {}, "bilm explore --run DIR"),
    );
  }
  const report = reporter();
  const charts = el("div", { class: "columns", id: "charts" });
  const options = model.runs.map((name, i) => el("option", { value: i }, name));
  const select = el("select", { id: "run", onchange: () => report(update) }, options);

  async function update() {
    const run = await get(`/v1/runs/${select.value}`);
    charts.replaceChildren(
      ...CHARTS.map(([title, names]) => {
        const curves = names.filter((name) => run.series[name]);
        return chart(title, curves.map((name) => [name, run.series[name]]));
      }),
    );
  }

  report(update);
  setInterval(() => {
    if (!document.hidden && charts.offsetParent !== null) report(update);
  }, 1000 * SECONDS);

  const board = el("a", { href: "http://localhost:6006/", rel: "noreferrer" }, "TensorBoard");
  const command = el("code", {}, "tensorboard --logdir RUN/tensorboard");
  return el(
    "div",
    {},
    el("div", { class: "row" }, el("label", { for: "run" }, "Run"), select),
    charts,
    el("p", { class: "note" }, "For all metrics, start ", command, " and open ", board, "."),
  );
}
