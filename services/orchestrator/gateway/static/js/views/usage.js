// Usage: model calls of memory by day and layer, and recent runs.

import { call } from "../api.js";
import { empty, h, replace } from "../dom.js";
import { count, moment, ms, t, term } from "../i18n.js";

export async function usageView(root) {
  const from = new Date(Date.now() - 29 * 86_400_000).toISOString().slice(0, 10);
  const [usage, page] = await Promise.all([call("memory", "GetUsage", { from_day: from, to_day: new Date().toISOString().slice(0, 10) }),
    call("orchestrator", "ListRuns", { page_size: 50 })]);
  const sum = (name) => usage.entries.reduce((total, one) => total + Number(one[name]), 0);
  const spent = (name) => page.runs.reduce((total, run) => total + Number(run.usage?.[name] || 0), 0);
  const stat = (label, value) => h("div", { class: "card stat" }, h("b", {}, count(value)), h("span", { class: "faint" }, label));
  replace(root, h("div", { class: "page" }, h("header", {}, h("div", {}, h("h1", {}, t("usage")), h("p", { class: "lead" }, t("usageLead")))),
    h("div", { class: "grid" }, stat(`${t("memory")} · ${t("calls")}`, sum("calls")), stat(`${t("memory")} · ${t("promptTokens")}`, sum("prompt_tokens")),
      stat(`${t("chat")} · ${t("promptTokens")}`, spent("prompt_tokens")), stat(`${t("chat")} · ${t("completionTokens")}`, spent("completion_tokens"))),
    usage.exhausted_layers.length > 0 && h("div", { class: "row" }, usage.exhausted_layers.map((one) => h("span", { class: "tag bad" }, `${one}: ${t("stoppedByBudget")}`))),
    usage.entries.length > 0 && h("section", { class: "card scroll" }, h("table", { class: "table" }, h("thead", {}, h("tr", {}, [t("day"), t("layer"), t("calls"), t("promptTokens"), t("completionTokens"), t("failed"), t("stoppedByBudget")].map((text) => h("th", {}, text)))),
      h("tbody", {}, usage.entries.map((one) => h("tr", {}, [one.day, one.layer, count(one.calls), count(one.prompt_tokens), count(one.completion_tokens), count(one.failed_calls), count(one.stopped_calls)].map((text) => h("td", {}, text))))))),
    h("h1", {}, t("runs")), page.runs.length ? h("div", { class: "card scroll" }, h("table", { class: "table" }, h("thead", {}, h("tr", {}, [t("time"), t("user"), t("intent"), t("duration"), t("firstText"), t("saveState"), t("degraded")].map((text) => h("th", {}, text)))),
      h("tbody", {}, page.runs.map(row)))) : empty(t("noItems"))));
}

function row(run) {
  const took = run.end_time ? new Date(run.end_time) - new Date(run.create_time) : 0;
  return h("tr", {}, h("td", { class: "faint" }, moment(run.create_time)), h("td", {}, run.user_id), h("td", {}, h("span", { class: "tag" }, term(run.intent, "INTENT_"))),
    h("td", { class: "mono" }, ms(took)), h("td", { class: "mono" }, ms(run.first_text_ms)),
    h("td", {}, h("span", { class: run.save_state === "saved" ? "tag good" : run.save_state === "pending" ? "tag warn" : "tag" }, term(run.save_state))),
    h("td", {}, run.degradations.map((one) => h("span", { class: "tag warn", title: one.message }, term(one.kind, "DEGRADATION_KIND_")))));
}
