// A map of occurrences. Hovering or the arrow keys select a point, whose context is the caption; a
// click keeps the selection. Returns a function that selects the point of a row.

import { context, el, svg } from "./dom.js";

const SIZE = 400;
const MARGIN = 14;

function scale(values) {
  const low = Math.min(...values);
  const range = Math.max(...values) - low || 1;
  return (value) => MARGIN + ((value - low) / range) * (SIZE - 2 * MARGIN);
}

export function drawMap(place, layer, numOccurrences, relate) {
  const { points, variance } = layer.map;
  const x = scale(points.map((point) => point.x));
  const y = scale(points.map((point) => -point.y));
  const caption = el("p", { class: "caption", "aria-live": "polite" });
  let active = -1;
  let pinned = -1;

  function activate(number) {
    circles[active]?.classList.remove("active");
    circles[active]?.setAttribute("aria-selected", "false");
    active = number;
    if (number < 0) return;
    circles[number].classList.add("active");
    circles[number].setAttribute("aria-selected", "true");
    map.setAttribute("aria-activedescendant", circles[number].id);
    const { words, place: position, row } = points[number];
    const isQuery = row < 0 ? "The sentence above: " : "";
    caption.replaceChildren(isQuery, context(words, position));
    relate(row);
  }

  const circles = points.map((point, i) =>
    svg("circle", {
      id: `point-${i}`,
      role: "option",
      "aria-label": point.words.join(" "),
      "aria-selected": "false",
      class: point.row < 0 ? "query" : "point",
      "data-row": point.row,
      cx: x(point.x).toFixed(1),
      cy: y(-point.y).toFixed(1),
      r: point.row < 0 ? 7 : 5,
      onmouseenter: () => pinned < 0 && activate(i),
      onclick: () => {
        pinned = pinned === i ? -1 : i;
        activate(i);
      },
    }),
  );

  function move(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      activate((active + step + circles.length) % circles.length);
    }
  }

  const map = svg(
    "svg",
    {
      class: "map",
      viewBox: `0 0 ${SIZE} ${SIZE}`,
      role: "listbox",
      tabindex: 0,
      "aria-label": "Occurrences; use the arrow keys to select one",
      onkeydown: move,
    },
    circles,
  );
  function select(row) {
    const number = points.findIndex((point) => point.row === row);
    if (number >= 0 && pinned < 0) activate(number);
  }

  const shown = points.length - 1;
  const share = variance > 0 ? `${(100 * variance).toFixed(0)}% of the variance` : "all equal";
  place.replaceChildren(
    el("h3", {}, `Map: ${layer.layer}`),
    el("p", { class: "note" }, `${shown} of ${numOccurrences} occurrences (PCA, ${share}).`),
    map,
    caption,
  );
  return select;
}
