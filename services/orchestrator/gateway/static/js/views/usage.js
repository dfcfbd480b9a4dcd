// Usage: model calls of memory by day and layer, and recent runs with their traces.

import { call } from "../api.js";
import { dialog, empty, h, iconButton, replace, toast } from "../dom.js";
import { count, moment, ms, t, term } from "../i18n.js";
import { Trace } from "./trace.js";

const DAYS = 30;
const RUNS = 100; // shown
const COUNTED = 5_000; // read, at most, to sum up their tokens
const PAGE = 200;
const TONE = { saved: "tag good", pending: "tag warn", failed: "tag bad" };

export async function usageView(root) {
  const days = Array.from({ length: DAYS }, (_, back) => new Date(Date.now() - (DAYS - 1 - back) * 86_400_000).toISOString().slice(0, 10));
  const [usage, found] = await Promise.all([call("memory", "GetUsage", { from_day: days[0], to_day: days.at(-1) }), runsSince(days[0])]);
  const sum = (name) => usage.entries.reduce((total, one) => total + Number(one[name]), 0);
  const spent = (name) => found.runs.reduce((total, run) => total + Number(run.usage?.[name] || 0), 0);
  const stat = (label, value) => h("div", { class: "card stat" }, h("b", {}, count(value)), h("span", { class: "faint" }, label));
  replace(root, h("div", { class: "page" }, h("header", {}, h("div", {}, h("h1", {}, t("usage")), h("p", { class: "lead" }, t("usageLead")))),
    h("div", { class: "grid stats" }, stat(`${t("memory")} · ${t("calls")}`, sum("calls")), stat(`${t("memory")} · ${t("promptTokens")}`, sum("prompt_tokens")),
      stat(`${t("chat")} · ${t("promptTokens")}`, spent("prompt_tokens")), stat(`${t("chat")} · ${t("completionTokens")}`, spent("completion_tokens"))),
    usage.exhausted_layers.length > 0 && h("div", { class: "row" }, usage.exhausted_layers.map((one) => h("span", { class: "tag bad" }, `${term(one)}: ${t("stoppedByBudget")}`))),
    !found.complete && h("p", { class: "faint", id: "counted" }, t("runsCounted").replace("{}", count(found.runs.length))),
    chart(days, usage.entries, found.runs), usage.entries.length > 0 && layers(usage.entries),
    h("h2", {}, t("runs")), found.latest.length ? runs(found.latest) : empty(t("noItems"))));
}

/** The runs since a day, newest first, page by page; `complete` is false where there are too many. */
async function runsSince(day) {
  const read = [];
  let page_token = "";
  do {
    const page = await call("orchestrator", "ListRuns", { page_size: PAGE, page_token });
    read.push(...page.runs);
    page_token = page.next_page_token;
  } while (page_token && read.length < COUNTED && dayOf(read.at(-1)) >= day);
  const complete = !page_token || dayOf(read.at(-1)) < day;
  return { latest: read.slice(0, RUNS), runs: read.filter((run) => dayOf(run) >= day), complete };
}

const dayOf = (run) => run.create_time.slice(0, 10);

/** Tokens of chats and of memory, a column a day. */
function chart(days, entries, runs_) {
  const byDay = new Map(days.map((day) => [day, { chat: 0, memory: 0 }]));
  const tokens = (one) => Number(one?.prompt_tokens || 0) + Number(one?.completion_tokens || 0);
  for (const one of entries) if (byDay.has(one.day)) byDay.get(one.day).memory += tokens(one);
  for (const run of runs_) if (byDay.has(dayOf(run))) byDay.get(dayOf(run)).chat += tokens(run.usage);
  const most = Math.max(1, ...[...byDay.values()].map((one) => one.chat + one.memory));
  const columns = [...byDay].map(([day, one]) => {
    const column = h("div", { title: `${day}: ${t("chat")} ${count(one.chat)}, ${t("memory")} ${count(one.memory)}` });
    for (const kind of ["memory", "chat"]) {
      const part = h("i", { class: kind });
      part.style.height = `${(one[kind] / most) * 100}%`;
      column.append(part);
    }
    return column;
  });
  return h("section", { class: "card stack" }, h("h2", {}, t("tokensByDay")), h("div", { class: "days", role: "img", "aria-label": t("tokensByDay") }, columns),
    h("div", { class: "legend" }, h("span", { class: "rest" }, h("b"), t("chat")), h("span", { class: "memory" }, h("b"), t("memory"))));
}

function layers(entries) {
  const names = [t("day"), t("layer"), t("calls"), t("promptTokens"), t("completionTokens"), t("failed"), t("stoppedByBudget")];
  return table(names, entries.map((one) => h("tr", {}, [one.day, term(one.layer), count(one.calls), count(one.prompt_tokens), count(one.completion_tokens), count(one.failed_calls), count(one.stopped_calls)].map((text) => h("td", {}, text)))));
}

function runs(found) {
  return table([t("time"), t("user"), t("intent"), t("duration"), t("firstText"), t("saveState"), t("degraded"), ""], found.map((run) => {
    const took = run.end_time ? new Date(run.end_time) - new Date(run.create_time) : 0;
    return h("tr", {}, h("td", { class: "faint" }, moment(run.create_time)), h("td", {}, run.user_id), h("td", {}, h("span", { class: "tag" }, term(run.intent, "INTENT_"))),
      h("td", { class: "mono" }, ms(took)), h("td", { class: "mono" }, ms(run.first_text_ms)),
      h("td", {}, h("span", { class: TONE[run.save_state] || "tag" }, term(run.save_state))),
      h("td", {}, run.degradations.map((one) => h("span", { class: "tag warn", title: one.message }, term(one.kind, "DEGRADATION_KIND_")))),
      h("td", {}, iconButton("pulse", t("openRun"), () => open(run))));
  }));
}

function table(names, rows) {
  return h("div", { class: "card scroll" }, h("table", { class: "table" }, h("thead", {}, h("tr", {}, names.map((text) => h("th", {}, text)))), h("tbody", {}, rows)));
}

async function open(run) {
  try {
    const { events } = await call("orchestrator", "GetRun", { run_id: run.run_id, include_events: true });
    const node = h("div", { class: "trace" });
    new Trace(node).replay(events);
    const said = events.find((one) => one.completed)?.completed;
    await dialog((close) => h("article", { class: "stack run" },
      h("div", { class: "row" }, h("span", { class: "faint grow" }, `${moment(run.create_time)} · ${run.user_id} · ${run.model}`), iconButton("close", t("close"), () => close())),
      h("div", { class: "quote" }, said?.response?.answer?.text || said?.error?.message || ""), node), "side");
  } catch (error) { toast(error.message, true); }
}
