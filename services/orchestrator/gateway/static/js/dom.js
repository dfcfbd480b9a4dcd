// Building DOM without HTML strings: text is always text.

import { t } from "./i18n.js";

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  chat: ["M4 5h16v11H9l-5 4z"],
  memory: ["M12 3a9 9 0 1 0 9 9", "M12 7a5 5 0 1 0 5 5", "M12 11a1 1 0 1 0 1 1"],
  search: ["M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13z", "M15.5 15.5 20 20"],
  library: ["M5 4v16", "M9 4v16", "M13 4h5v16h-5z"],
  jobs: ["M4 6h10", "M4 12h16", "M4 18h7"],
  usage: ["M4 20V10", "M10 20V4", "M16 20v-7", "M21 20H3"],
  send: ["M5 12h14", "M13 6l6 6-6 6"],
  stop: ["M7 7h10v10H7z"],
  plus: ["M12 5v14", "M5 12h14"],
  up: ["M7 11v9H4v-9z", "M7 11l4-7c2 0 2.500 1.500 2 3l-1 3h6l-1.500 9.500H7"],
  down: ["M7 13V4H4v9z", "M7 13l4 7c2 0 2.500-1.500 2-3l-1-3h6L16.500 4.500H7"],
  moon: ["M20 14A8 8 0 1 1 10 4a6.500 6.500 0 0 0 10 10z"],
  key: ["M15 9a4 4 0 1 0-3.500 4L13 14h2v2h2v2h3v-3l-5-5z"],
  sliders: ["M4 7h10", "M18 7h2", "M16 5v4", "M4 17h2", "M10 17h10", "M8 15v4"],
  close: ["M6 6l12 12", "M18 6 6 18"],
  file: ["M7 3h7l4 4v14H7z", "M14 3v4h4"],
  leaf: ["M5 19c0-9 6-14 15-14 0 9-5 15-14 15", "M5 20c3-6 6-8 10-10"],
  pulse: ["M3 12h4l3-7 4 14 3-7h4"],
};

/** An element: props are properties, `on*` listeners, `class`, `data-*`/`aria-*` attributes. */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "class") node.className = value;
    else if (key in node && !key.includes("-") && key !== "list") node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  add(node, children);
  return node;
}

/** Append children; strings become text, nothing else. */
export function add(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

export function replace(node, ...children) {
  node.replaceChildren();
  return add(node, children);
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  for (const d of ICONS[name] || []) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    svg.append(path);
  }
  return svg;
}

/** A bar from 0 to 1. */
export function bar(value, kind = "", label = "") {
  const fill = h("i", { class: kind });
  fill.style.width = `${Math.max(0, Math.min(1, value || 0)) * 100}%`;
  return h("div", { class: "bar", role: "img", "aria-label": label }, fill);
}

export function field(label, control) {
  return h("label", { class: "field" }, h("span", {}, label), control);
}

export function select(options, value, onchange, props = {}) {
  const node = h("select", { ...props, onchange: () => onchange(node.value) });
  for (const [key, text] of options) node.append(h("option", { value: key, selected: key === value }, text));
  return node;
}

/** A button without words; `label` is what screen readers say. */
export function iconButton(picture, label, onclick, cls = "ghost") {
  return h("button", { class: cls, type: "button", title: label, "aria-label": label, onclick }, icon(picture));
}

export function empty(text, ...more) {
  return h("div", { class: "empty" }, h("img", { src: "/console/rings.svg", alt: "" }), h("p", {}, text), more);
}

/** A dialog that resolves with what `close(value)` was called with; Escape gives undefined. */
export function dialog(build, cls = "") {
  return new Promise((resolve) => {
    const node = h("dialog", { class: cls });
    let result;
    const close = (value) => { result = value; node.close(); };
    add(node, build(close));
    node.addEventListener("close", () => { node.remove(); resolve(result); });
    node.addEventListener("click", (event) => { if (event.target === node) node.close(); });
    document.body.append(node);
    node.showModal();
  });
}

export function confirmDialog(title, text, action, danger = true) {
  return dialog((close) => h("form", {
    class: "stack", onsubmit: (event) => { event.preventDefault(); close(true); },
  }, h("h1", {}, title), h("p", { class: "lead" }, text), h("div", { class: "row end" },
    h("button", { type: "button", class: "btn", onclick: () => close(false) }, t("cancel")),
    h("button", { class: danger ? "btn danger" : "btn primary" }, action))));
}

export function toast(text, bad = false) {
  let box = document.querySelector(".toasts");
  if (!box) { box = h("div", { class: "toasts", role: "status", "aria-live": "polite" }); document.body.append(box); }
  const node = h("div", { class: bad ? "toast bad" : "toast" }, text);
  box.append(node);
  setTimeout(() => node.remove(), bad ? 7000 : 3500);
}
