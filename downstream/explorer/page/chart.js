// A chart of curves over steps.

import { el, svg } from "./dom.js";

const WIDTH = 460;
const HEIGHT = 240;
const LEFT = 62;
const BOTTOM = 28;
const TOP = 10;
const RIGHT = 12;

function label(value) {
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

// A sample of the line, and the last value.
function entry(name, points, number) {
  const line = svg("line", { class: `curve c${number}`, x1: 0, x2: 28, y1: 6, y2: 6 });
  const sample = svg("svg", { width: 28, height: 12, "aria-hidden": "true" }, line);
  return el("li", {}, sample, ` ${name}: ${label(points.at(-1)[1])}`);
}

export function chart(title, curves) {
  const all = curves.flatMap(([, points]) => points);
  if (!all.length) return el("section", {}, el("h2", {}, title), el("p", {}, "No values yet."));
  const steps = all.map(([step]) => step);
  const values = all.map(([, value]) => value);
  const [first, last] = [Math.min(...steps), Math.max(...steps)];
  const margin = Math.min(...values) === Math.max(...values) ? 0.5 : 0; // of a flat curve
  const [low, high] = [Math.min(...values) - margin, Math.max(...values) + margin];
  const x = (step) => LEFT + ((step - first) / (last - first || 1)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - BOTTOM - TOP);
  const lines = curves.map(([, points], i) =>
    svg("polyline", {
      class: `curve c${i}`,
      points: points.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" "),
    }),
  );
  const ends = curves.map(([name, points]) => `${name}: ${label(points.at(-1)[1])}`).join("; ");
  const axes = [
    svg("line", { class: "axis", x1: LEFT, x2: LEFT, y1: TOP, y2: HEIGHT - BOTTOM }),
    svg("line", {
      class: "axis",
      x1: LEFT,
      x2: WIDTH - RIGHT,
      y1: HEIGHT - BOTTOM,
      y2: HEIGHT - BOTTOM,
    }),
    svg("text", { x: LEFT - 6, y: TOP + 10, "text-anchor": "end" }, label(high)),
    svg("text", { x: LEFT - 6, y: HEIGHT - BOTTOM, "text-anchor": "end" }, label(low)),
    svg("text", { x: LEFT, y: HEIGHT - 8 }, `step ${label(first)}`),
    svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 8, "text-anchor": "end" }, label(last)),
  ];
  return el(
    "section",
    {},
    el("h2", {}, title),
    svg(
      "svg",
      { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${ends}` },
      axes,
      lines,
    ),
    el("ul", { class: "legend" }, curves.map(([name, points], i) => entry(name, points, i))),
  );
}
