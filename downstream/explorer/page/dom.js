// Create elements. Text is always set as text, never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "heat") node.style.setProperty("--heat", String(value));
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, String(value));
  }
  node.append(...children.flat().filter((child) => child != null));
  return node;
}

export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// The words of an occurrence, with the word itself highlighted.
export function context(words, place) {
  return el(
    "span",
    {},
    words.slice(0, place).map((word) => `${word} `),
    el("mark", {}, words[place]),
    words.slice(place + 1).map((word) => ` ${word}`),
  );
}

export function clamp(value) {
  return Math.min(1, Math.max(0, value));
}

// A group of radio buttons; `change` is called with the chosen value.
export function choice(legend, name, options, value, change) {
  const inputs = options.map(([key, label]) =>
    el(
      "label",
      {},
      el("input", {
        type: "radio",
        name,
        value: key,
        checked: key === value,
        onchange: () => change(key),
      }),
      ` ${label}`,
    ),
  );
  return el("fieldset", {}, el("legend", {}, legend), inputs);
}

// A form with one text area; Enter submits it, Shift+Enter starts a new line.
export function sentenceForm(id, labels, values, button, submit) {
  const areas = labels.map((label, i) => {
    const area = el("textarea", { id: `${id}-${i}`, rows: 2, spellcheck: "false" });
    area.value = values[i];
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    return [el("label", { for: area.id }, label), area];
  });
  const form = el(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        submit(...areas.map(([, area]) => area.value));
      },
    },
    areas.flat(),
    el("div", { class: "row" }, el("button", { class: "primary" }, button)),
  );
  return form;
}
