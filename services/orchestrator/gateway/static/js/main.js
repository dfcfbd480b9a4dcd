// The shell: navigation by hash, key, language, theme.

import { call } from "./api.js";
import { confirmDialog, dialog, field, h, icon, replace, toast } from "./dom.js";
import { setLanguage, t } from "./i18n.js";
import { key, save, state } from "./state.js";
import { chatView } from "./views/chat.js";
import { jobsView } from "./views/jobs.js";
import { libraryView } from "./views/library.js";
import { memoryView } from "./views/memory.js";
import { searchView } from "./views/search.js";
import { usageView } from "./views/usage.js";

const VIEWS = { chat: chatView, memory: memoryView, search: searchView, library: libraryView, jobs: jobsView, usage: usageView };
let leave = () => {};
let asking = null;
let moved = false;

function route() {
  const name = location.hash.replace(/^#\/?/, "").split("?")[0];
  return name in VIEWS ? name : "chat";
}

/** Any page can link here: a key in the address replaces one in use only if the user says so. */
async function takeKeyFromAddress() {
  const match = location.hash.match(/[#?&]key=([^&]*)/);
  if (!match) return;
  history.replaceState(null, "", "#/chat");
  let brought = "";
  try {
    brought = decodeURIComponent(match[1]).trim();
  } catch (error) {
    if (!(error instanceof URIError)) throw error;
  }
  if (!brought) return toast(t("keyWrong"), true);
  if (brought === key.get()) return;
  if (key.get() && !await confirmDialog(t("keyOther"), t("keyOtherHelp"), t("keyReplace"))) return;
  key.set(brought, false);
}

async function show() {
  leave();
  leave = () => {};
  const name = route();
  document.documentElement.dataset.theme = state.theme;
  document.documentElement.lang = state.lang === "zh" ? "zh-CN" : "en";
  document.querySelector(".skip").textContent = t("skip");
  const view = h("main", { id: "view", tabIndex: -1 });
  replace(document.getElementById("app"), h("div", { class: "shell" }, rail(name), view));
  if (moved) view.focus({ preventScroll: true });
  document.title = `${t(name)} · ${t("product")}`;
  if (!key.get()) await askKey();
  try {
    leave = (await VIEWS[name](view)) || leave;
  } catch (error) {
    if (error.status !== 401) toast(error.message, true);
  }
}

function rail(current) {
  const links = Object.keys(VIEWS).map((name) => h("a", {
    href: `#/${name}`, "aria-current": name === current ? "page" : undefined,
  }, icon(name), h("span", {}, t(name))));
  return h("div", { class: "rail" },
    h("div", { class: "brand" }, h("img", { src: "/console/rings.svg", alt: "" }),
      h("span", {}, t("product"), h("small", {}, t("tagline")))),
    h("nav", { "aria-label": t("product") }, links),
    h("div", { class: "tools" },
      h("button", { class: "ghost", title: t("language"), "aria-label": t("language"), onclick: switchLanguage },
        state.lang === "zh" ? "EN" : "中"),
      h("button", { class: "ghost", title: t("theme"), "aria-label": t("theme"), onclick: switchTheme }, icon("moon")),
      h("button", { class: "ghost", title: t("key"), "aria-label": t("key"), onclick: askKey }, icon("key"))));
}

function switchLanguage() {
  save({ lang: state.lang === "zh" ? "en" : "zh" });
  setLanguage(state.lang);
  show();
}

function switchTheme() {
  save({ theme: state.theme === "dark" ? "light" : "dark" });
  document.documentElement.dataset.theme = state.theme;
}

function askKey() {
  asking ||= dialog((close) => {
    const input = h("input", { type: "password", value: key.get(), autocomplete: "off", placeholder: "nl_…", required: true });
    const keep = h("input", { type: "checkbox", checked: key.kept() });
    const problem = h("p", { class: "tag bad hidden" });
    const submit = async (event) => {
      event.preventDefault();
      key.set(input.value.trim(), keep.checked);
      try {
        await call("embedder", "ListModels");
        close(true);
      } catch (error) {
        problem.textContent = error.status === 401 ? t("keyWrong") : error.message;
        problem.classList.remove("hidden");
      }
    };
    return h("form", { class: "stack", onsubmit: submit }, h("h1", {}, t("keyTitle")),
      h("p", { class: "lead" }, t("keyHelp")), field(t("key"), input),
      h("label", { class: "check" }, keep, t("keyKeep")), problem,
      h("div", { class: "row end" }, h("button", { class: "btn primary" }, t("connect"))));
  }).finally(() => { asking = null; });
  return asking;
}

document.addEventListener("unauthenticated", async () => {
  if (asking) return;
  key.clear();
  if (await askKey()) show();
});
document.addEventListener("keydown", (event) => {
  const number = Number(event.key);
  if (event.altKey && number >= 1 && number <= 6) {
    event.preventDefault();
    location.hash = `#/${Object.keys(VIEWS)[number - 1]}`;
  }
});
window.addEventListener("hashchange", async () => { moved = true; await takeKeyFromAddress(); show(); });
setLanguage(state.lang);
takeKeyFromAddress().then(show);
