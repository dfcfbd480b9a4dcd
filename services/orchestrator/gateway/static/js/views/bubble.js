// Messages of a chat: what was said, and the answer that is being written.

import { call } from "../api.js";
import { h, icon, toast } from "../dom.js";
import { count, ms, t, term } from "../i18n.js";
import { json, prose } from "../prose.js";
import { requestId } from "../state.js";

const MARK = /\s?\[E\d{1,4}\]/g;

/** A message of the past. Its citations point to nothing any more and are left out. */
export function said(message) {
  if (message.role === "ROLE_USER") return h("div", { class: "msg user" }, h("div", { class: "bubble" }, message.text));
  return h("div", { class: "msg bot" }, who(), prose(message.text.replace(MARK, ""), () => {}));
}

function who() {
  return h("div", { class: "who" }, h("img", { src: "/console/rings.svg", alt: "" }), t("product"));
}

/** The answer of a run, as its events come in. */
export class Answer {
  constructor(trace) {
    this.said = "";
    this.body = h("div", { class: "prose caret" });
    this.thought = h("details", { class: "thinking hidden" }, h("summary", {}, t("thinkingOf")));
    this.notices = h("div", { class: "notices" });
    this.foot = h("div", { class: "row foot" });
    this.node = h("div", { class: "msg bot" }, who(), this.thought, this.body, this.notices, this.foot);
    this.cite = (id) => trace.open(id);
  }

  show(next) {
    this.body.replaceWith(next);
    this.body = next;
  }

  text(piece) {
    this.said += piece;
    const next = prose(this.said, this.cite);
    next.classList.add("caret");
    this.show(next);
  }

  think(piece) {
    this.thought.classList.remove("hidden");
    this.thought.append(piece);
  }

  notice(one) {
    this.notices.append(h("span", { class: "tag warn", title: one.message }, term(one.kind, "DEGRADATION_KIND_")));
  }

  fail(message) {
    this.body.classList.remove("caret");
    this.notices.append(h("span", { class: "tag bad" }, message));
  }

  complete(completed, runId) {
    this.body.classList.remove("caret");
    if (completed.state !== "RUN_STATE_COMPLETED") {
      this.fail(completed.error?.message || term(completed.state, "RUN_STATE_"));
      return;
    }
    const { answer, usage, steps, model } = completed.response;
    this.show((answer.json && json(answer.json)) || prose(answer.text, this.cite));
    const weak = answer.support.filter((one) => !one.supported);
    if (weak.length) {
      const chars = [...answer.text];
      this.node.insertBefore(h("div", { class: "weak" }, h("h3", {}, t("unsupportedN")),
        weak.map((one) => h("p", { class: "unsupported" }, chars.slice(one.start, one.end).join("")))), this.notices);
    }
    const took = Math.max(0, ...steps.map((step) => step.start_ms + step.ms));
    const spent = usage ? `${count(usage.prompt_tokens)} + ${count(usage.completion_tokens)} ${term("tokens")}` : "";
    this.foot.append(h("span", { class: "faint" }, [model, ms(took), spent].filter(Boolean).join(" · ")),
      judge(runId, ""));
  }
}

/** Thumbs for an answer, or for a reading that it recommended. */
export function judge(runId, readingId) {
  const node = h("span", { class: "row judge" });
  for (const [picture, word, verdict] of [["up", "useful", "FEEDBACK_VERDICT_USEFUL"], ["down", "notUseful", "FEEDBACK_VERDICT_NOT_USEFUL"]]) {
    const button = h("button", { class: "ghost", type: "button", title: t(word), "aria-label": t(word), "aria-pressed": "false", onclick: async () => {
      try {
        await call("orchestrator", "SubmitFeedback", { run_id: runId, request_id: requestId(), feedback: { verdict, reading_id: readingId } });
        node.querySelectorAll("button").forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
        toast(t("thanks"));
      } catch (error) { toast(error.message, true); }
    } }, icon(picture));
    node.append(button);
  }
  return node;
}
