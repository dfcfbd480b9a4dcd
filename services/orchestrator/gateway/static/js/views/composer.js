// Where a message is written, and what may be used to answer it.

import { h, icon, iconButton, replace } from "../dom.js";
import { t } from "../i18n.js";
import { save, state } from "../state.js";

const SWITCHES = { memory: "useMemory", retrieval: "useRetrieval", tools: "useTools", verify: "useVerify" };
const TALLEST = 180;

export class Composer {
  constructor(send) {
    this.send = send;
    this.area = h("textarea", { rows: 1, placeholder: t("ask"), "aria-label": t("ask"), oninput: () => this.fit() });
    this.button = h("button", { class: "btn primary", type: "submit", "aria-label": t("send") }, icon("send"), h("span", { class: "wide" }, t("send")));
    this.stop = h("button", { class: "btn hidden", type: "button" }, icon("stop"), t("stop"));
    this.scope = h("div", { class: "row" });
    const form = h("form", { class: "box", onsubmit: (event) => {
      event.preventDefault();
      const text = this.area.value.trim();
      if (!text || this.button.disabled) return;
      this.area.value = "";
      this.fit();
      send(text);
    } }, this.scope, this.area, h("div", { class: "row" }, h("div", { class: "switches grow" }, Object.entries(SWITCHES).map(flip)), this.stop, this.button));
    this.area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
    });
    this.node = h("div", { class: "composer" }, form);
    this.drawScope();
  }

  /** The one document that is asked about, where there is one. */
  drawScope() {
    this.scope.classList.toggle("hidden", !state.document);
    if (!state.document) { replace(this.scope); return; }
    const clear = () => { save({ document: "", documentTitle: "" }); this.drawScope(); };
    replace(this.scope, h("span", { class: "tag info document" }, icon("file"), h("span", { class: "clip" }, state.documentTitle || state.document)),
      h("button", { class: "ghost", type: "button", onclick: () => this.send(t("summariseIt")) }, t("summarise")),
      h("div", { class: "grow" }), iconButton("close", t("wholeCollection"), clear));
  }

  fit() {
    this.area.style.height = "auto";
    this.area.style.height = `${Math.min(TALLEST, this.area.scrollHeight)}px`;
  }

  focus() { this.area.focus(); }

  busy(onstop) {
    this.button.disabled = true;
    this.stop.classList.remove("hidden");
    this.stop.onclick = onstop;
  }

  idle() {
    this.button.disabled = false;
    this.stop.classList.add("hidden");
    this.focus();
  }
}

function flip([name, word]) {
  const button = h("button", { class: "ghost", type: "button", "aria-pressed": String(state[name]), onclick: () => {
    save({ [name]: !state[name] });
    button.setAttribute("aria-pressed", String(state[name]));
  } }, t(word));
  return button;
}
