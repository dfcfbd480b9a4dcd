// What happened in a run: steps as they start and end, sources, memory, tokens.

import { call } from "../api.js";
import { bar, dialog, h, icon, iconButton, replace, toast } from "../dom.js";
import { count, day, ms, t, term } from "../i18n.js";
import { judge } from "./bubble.js";

const STATUS = { STEP_STATUS_OK: "ok", STEP_STATUS_FALLBACK: "fallback", STEP_STATUS_SKIPPED: "skipped",
  STEP_STATUS_FAILED: "failed", STEP_STATUS_CANCELLED: "failed" };

export class Trace {
  constructor(node) {
    this.node = node;
    this.reset();
  }

  reset() {
    this.steps = new Map();
    this.tools = new Map();
    this.context = null;
    this.recommended = [];
    this.cited = new Set();
    this.draw();
  }

  /** Everything of a run that has ended, from its stored events. */
  replay(events) {
    for (const event of events) {
      if (event.step_started) this.steps.set(event.step_started.step, { ...event.step_started, status: "run" });
      else if (event.step_finished) this.stepFinished(event.step_finished);
      else if (event.context_ready) this.context = event.context_ready;
      else if (event.tool_call) this.tools.set(event.tool_call.call_id, event.tool_call);
      else if (event.completed) this.finished(event.completed.response?.answer, event.run_id);
    }
    this.draw();
  }

  stepStarted(step) {
    this.steps.set(step.step, { ...step, status: "run", begun: performance.now() });
    this.draw();
  }

  stepFinished(step) {
    const known = this.steps.get(step.step) || {};
    this.steps.set(step.step, { ...known, ...step, status: STATUS[step.status] || "ok" });
    this.draw();
  }

  tool(call_) {
    this.tools.set(call_.call_id, call_);
    this.draw();
  }

  contextReady(context) {
    this.context = context;
    this.draw();
  }

  finished(answer, runId) {
    this.recommended = answer?.recommendations || [];
    this.runId = runId;
    this.cited = new Set((answer?.citations || []).map((one) => one.evidence_id));
    if (answer && this.context) this.context.evidence = answer.evidence;
    this.draw();
  }

  draw() {
    const close = iconButton("close", t("close"), () => this.node.classList.remove("open"), "ghost tracetoggle");
    const head = h("div", { class: "row" }, h("h1", { class: "grow" }, t("trace")), close);
    if (!this.steps.size) {
      replace(this.node, head, h("p", { class: "faint" }, t("notYet")));
      return;
    }
    replace(this.node, head, this.timeline(), this.context && [this.tokens(), this.sources(), this.memories(), this.recommendations()]);
  }

  timeline() {
    const longest = Math.max(1, ...[...this.steps.values()].map((step) => step.ms || 0));
    const items = [...this.steps.values()].map((step) => h("li", { class: step.status },
      h("span", { class: "dot" }), h("span", {}, term(step.step === "readings" ? "find_readings" : step.step)),
      h("span", { class: "mono faint" }, step.ms === undefined ? "…" : ms(step.ms)),
      bar((step.ms || 0) / longest),
      h("span", { class: "note" }, step.message || noted(step.counts))));
    const tools = [...this.tools.values()].map((one) => h("span", { class: one.state.endsWith("FAILED") ? "tag bad" : "tag info" },
      term(one.tool), one.summary ? ` · ${one.summary}` : "…"));
    return h("section", { "aria-live": "polite" }, h("h3", {}, t("timeline")), h("ol", { class: "steps" }, items),
      tools.length > 0 && h("div", { class: "row" }, tools));
  }

  tokens() {
    const tokens = this.context.tokens || {};
    const total = Number(tokens.total || 0);
    const parts = ["memory", "evidence", "history"].map((name) => [name, Number(tokens[name] || 0)]);
    parts.push(["rest", Math.max(0, total - parts.reduce((sum, [, n]) => sum + n, 0))]);
    const stacked = h("div", { class: "stacked" }, parts.map(([name, n]) => {
      const part = h("i", { class: name });
      part.style.width = `${(n / Math.max(1, total)) * 100}%`;
      return part;
    }));
    const whole = Number(tokens.whole_documents || 0);
    return h("section", {}, h("h3", {}, `${t("tokens")} · ${count(total)}`), stacked,
      h("div", { class: "legend" }, parts.map(([name, n]) => h("span", { class: name }, h("b"), `${t(`t_${name}`)} ${count(n)}`))),
      whole > total && h("p", { class: "faint" }, `${t("wholeDocs")} ${count(whole)} · ${t("saved")} ${(whole / total).toFixed(1)}×`));
  }

  sources() {
    const found = this.context.evidence || [];
    if (!found.length) return null;
    return h("section", {}, h("h3", {}, `${t("sources")} · ${found.length}`), found.map((item) => h("button", {
      class: this.cited.has(item.evidence_id) ? "source cited" : "source", type: "button", onclick: () => openSource(item),
    }, h("span", { class: "row" }, h("span", { class: "tag info" }, item.evidence_id), h("b", { class: "grow clip" }, item.title || item.document_id),
      item.score > 0 && h("span", { class: "mono faint" }, item.score.toFixed(2))),
    h("span", { class: "faint clip" }, item.section || item.text.slice(0, 60)))));
  }

  memories() {
    const used = this.context.memories || [];
    const left = this.context.left_out || [];
    if (!used.length && !left.length) return null;
    return h("section", {}, h("h3", {}, `${t("memories")} · ${used.length}`),
      used.map((item) => h("div", { class: `memo ${item.trust}` }, h("span", {}, item.text),
        h("span", { class: "faint" }, [item.why, day(item.event_time)].filter(Boolean).join(" · ")))),
      left.length > 0 && h("p", { class: "faint" }, `${t("leftOut")}: `, left.map((one) => `${term(one.layer)} ${one.count} (${term(one.reason)})`).join(", ")));
  }

  recommendations() {
    if (!this.recommended.length) return null;
    return h("section", {}, h("h3", {}, `${t("related")} · ${this.recommended.length}`), this.recommended.map((one) => h("div", { class: "row related" },
      h("span", { class: "grow clip" }, one.title || one.document_id), h("span", { class: "mono faint" }, one.score.toFixed(2)), judge(this.runId, one.reading_id))));
  }

  open(id) {
    const item = (this.context?.evidence || []).find((one) => one.evidence_id === id);
    if (item) openSource(item);
  }
}

/** What a step counted, in words; nothing is said of what was not there. */
function noted(counts) {
  return Object.entries(counts || {}).filter(([, value]) => value !== "" && value !== "0")
    .map(([name, value]) => `${term(name)} ${/^[a-z_]+$/.test(value) ? term(value) : value}`).join(" · ");
}

/** The passage behind a citation, with its scores and, on request, what stands around it. */
export function openSource(item) {
  return dialog((close) => {
    const text = h("div", { class: "quote" }, item.text);
    const around = async (event) => {
      event.target.disabled = true;
      try {
        const part = await call("retriever", "OpenDocumentPart", { collection_id: item.collection_id, document_id: item.document_id,
          chunk_id: item.chunk_id, span: "PART_SPAN_NEIGHBOURS", before: 2, after: 2 });
        text.textContent = part.text;
      } catch (error) { toast(error.message, true); }
    };
    return h("article", { class: "stack" },
      h("div", { class: "row" }, h("span", { class: "tag info" }, item.evidence_id || ""), h("h1", { class: "grow" }, item.title || item.document_id),
        iconButton("close", t("close"), () => close())),
      h("p", { class: "lead" }, [item.section, item.document_id].filter(Boolean).join(" · ")),
      item.legs?.length > 0 && h("div", { class: "row" }, item.legs.map((leg) => h("span", { class: "tag" }, `${term(leg.leg)} ${leg.rank ? `#${leg.rank} ` : ""}${leg.score.toFixed(3)}`))),
      text, item.chunk_id && h("button", { class: "btn", type: "button", onclick: around }, icon("library"), t("openContext")));
  }, "side");
}
