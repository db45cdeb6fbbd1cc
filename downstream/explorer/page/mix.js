// The choice of a layer or of a mix, with sliders for the weights before the softmax.

import { choice, el } from "./dom.js";

export function softmax(values) {
  const largest = Math.max(...values);
  const powers = values.map((value) => Math.exp(value - largest));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / sum);
}

// `change` is called with {kind: "layer", layer} or {kind: "mix", weights}.
export function layerChoice(id, model, change) {
  const logits = new Array(model.num_layers).fill(0);
  let chosen = String(model.num_layers - 1);
  const shares = model.layer_names.map(() => el("span", {}));

  function current() {
    if (chosen !== "mix") return { kind: "layer", layer: Number(chosen) };
    return { kind: "mix", weights: softmax(logits) };
  }

  function showShares() {
    softmax(logits).forEach((share, i) => {
      shares[i].textContent = `${(100 * share).toFixed(0)}%`;
    });
  }

  const sliders = el(
    "fieldset",
    { hidden: true, id: `${id}-sliders` },
    el("legend", {}, "Weights of the mix"),
    model.layer_names.map((name, i) =>
      el(
        "label",
        { class: "slider" },
        el("span", {}, `${name}: `, shares[i]),
        el("input", {
          type: "range",
          min: -4,
          max: 4,
          step: 0.1,
          value: 0,
          oninput: (event) => {
            logits[i] = Number(event.target.value);
            showShares();
          },
          onchange: () => change(current()),
        }),
      ),
    ),
  );
  showShares();
  const options = model.layer_names.map((name, i) => [String(i), name]);
  const radios = choice("Layer", id, [...options, ["mix", "mix"]], chosen, (key) => {
    chosen = key;
    sliders.hidden = key !== "mix";
    change(current());
  });
  return { element: el("div", { class: "layers" }, radios, sliders), current };
}
