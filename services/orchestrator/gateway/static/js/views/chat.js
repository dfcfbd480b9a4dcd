// Chat: a live answer with its trace beside it.

import { all, call, stream } from "../api.js";
import { empty, field, h, icon, replace, select, toast } from "../dom.js";
import { ms, t } from "../i18n.js";
import { json, prose } from "../prose.js";
import { newSession, requestId, save, state } from "../state.js";
import { Trace } from "./trace.js";

const INTENTS = { "": "auto", INTENT_CHAT: "intent_chat", INTENT_DOCUMENT_QUESTION: "intent_doc",
  INTENT_PERSONALISED_SUMMARY: "intent_summary", INTENT_STRUCTURED_PLAN: "intent_plan", INTENT_EXTRACT: "intent_extract" };

export async function chatView(root) {
  const inner = h("div", { class: "inner" });
  const log = h("div", { class: "log", tabIndex: 0, "aria-label": t("chat") }, inner);
  const traceNode = h("aside", { class: "trace", "aria-label": t("trace") });
  const trace = new Trace(traceNode);
  const composer = new Composer((text) => send(text));
  let running = null;

  const collections = await all("retriever", "ListCollections", {}, "collections").catch(() => []);
  if (state.collection && !collections.some((one) => one.collection_id === state.collection)) save({ collection: "" });
  replace(root, h("div", { class: "chat" }, h("section", { class: "talk" },
    chatbar(collections, traceNode, () => { trace.reset(); greet(); }), log, composer.node), traceNode));
  greet();

  function greet() {
    replace(inner, empty(t("welcome"), h("div", { class: "starters" }, ["starter1", "starter2", "starter3"].map((name) =>
      h("button", { class: "btn", type: "button", onclick: () => send(t(name)) }, t(name))))));
  }

  async function send(text) {
    if (running) return;
    if (inner.querySelector(".empty")) inner.replaceChildren();
    const bubble = new Bubble(trace);
    inner.append(h("div", { class: "msg user" }, h("div", { class: "bubble" }, text)), bubble.node);
    const follow = () => { log.scrollTop = log.scrollHeight; };
    follow();
    trace.reset();
    running = new AbortController();
    composer.busy(() => running.abort());
    try {
      const body = { request_id: requestId(), input: input(text) };
      for await (const { event } of stream("orchestrator", "StreamChat", body, running.signal)) {
        take(event, bubble);
        follow();
      }
    } catch (error) {
      bubble.fail(error.name === "AbortError" ? t("stopped") : error.message);
    } finally {
      running = null;
      composer.idle();
    }
  }

  function take(event, bubble) {
    if (event.step_started) trace.stepStarted(event.step_started);
    else if (event.step_finished) trace.stepFinished(event.step_finished);
    else if (event.context_ready) trace.contextReady(event.context_ready);
    else if (event.tool_call) trace.tool(event.tool_call);
    else if (event.text_delta) bubble.text(event.text_delta.text);
    else if (event.thinking_delta) bubble.think(event.thinking_delta.text);
    else if (event.notice) bubble.notice(event.notice.degradation);
    else if (event.completed) {
      trace.finished(event.completed.response?.answer);
      bubble.complete(event.completed, event.run_id);
    }
  }

  composer.focus();
  return () => running?.abort();
}

function input(message) {
  return {
    message, user_id: state.user, session_id: state.session, intent: state.intent || "INTENT_UNSPECIFIED",
    scope: state.collection ? { collection_id: state.collection } : {},
    use_memory: state.memory, use_retrieval: state.retrieval, use_tools: state.tools, verify: state.verify,
    time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC",
  };
}

function chatbar(collections, traceNode, restart) {
  const user = h("input", { value: state.user, autocomplete: "off", onchange: () => { save({ user: user.value.trim(), session: newSession() }); session.textContent = state.session; restart(); } });
  const session = h("span", { class: "mono faint clip" }, state.session);
  const renew = () => { save({ session: newSession() }); session.textContent = state.session; restart(); };
  const end = async () => {
    try {
      await call("memory", "EndSession", { request_id: requestId(), user_id: state.user, session_id: state.session });
      toast(t("sessionEnded"));
    } catch (error) {
      if (error.status !== 404) toast(error.message, true);
    }
    renew();
  };
  const check = (name, label) => h("label", { class: "check" }, h("input", { type: "checkbox", checked: state[name], onchange: (e) => save({ [name]: e.target.checked }) }), t(label));
  const node = h("header", { class: "chatbar folded" },
    field(t("user"), user),
    h("div", { class: "fold" }, field(t("collection"), select([["", t("none")], ...collections.map((one) => [one.collection_id, one.display_name || one.collection_id])], state.collection, (value) => save({ collection: value })))),
    h("div", { class: "fold" }, field(t("intent"), select(Object.entries(INTENTS).map(([key, word]) => [key, t(word)]), state.intent, (value) => save({ intent: value })))),
    h("div", { class: "row fold" }, check("memory", "useMemory"), check("retrieval", "useRetrieval"), check("tools", "useTools"), check("verify", "useVerify")),
    h("div", { class: "grow" }),
    h("div", { class: "row" }, session,
      h("button", { class: "ghost", type: "button", onclick: renew }, icon("plus"), t("newSession")),
      h("button", { class: "ghost fold", type: "button", onclick: end }, t("endSession")),
      h("button", { class: "ghost", type: "button", "aria-label": t("options"), onclick: () => node.classList.toggle("folded") }, icon("sliders")),
      h("button", { class: "ghost tracetoggle", type: "button", "aria-label": t("trace"), onclick: () => traceNode.classList.toggle("open") }, icon("pulse"))));
  return node;
}

class Composer {
  constructor(send) {
    this.area = h("textarea", { rows: 1, placeholder: t("ask"), "aria-label": t("ask"), oninput: () => this.fit() });
    this.button = h("button", { class: "btn primary", type: "submit" }, icon("send"), t("send"));
    this.stop = h("button", { class: "btn hidden", type: "button" }, icon("stop"), t("stop"));
    this.area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
    });
    const form = h("form", { class: "box", onsubmit: (event) => {
      event.preventDefault();
      const text = this.area.value.trim();
      if (!text || this.button.disabled) return;
      this.area.value = "";
      this.fit();
      send(text);
    } }, this.area, h("div", { class: "row end" }, this.stop, this.button));
    this.node = h("div", { class: "composer" }, form);
  }

  fit() {
    this.area.style.height = "auto";
    this.area.style.height = `${Math.min(180, this.area.scrollHeight)}px`;
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

class Bubble {
  constructor(trace) {
    this.trace = trace;
    this.said = "";
    this.body = h("div", { class: "prose caret" });
    this.thought = h("details", { class: "thinking hidden" }, h("summary", {}, "…"));
    this.notices = h("div", { class: "notices" });
    this.foot = h("div", { class: "row" });
    this.node = h("div", { class: "msg bot" }, h("div", { class: "who" }, h("img", { src: "/console/rings.svg", alt: "" }), t("product")),
      this.thought, this.body, this.notices, this.foot);
    this.cite = (id) => this.trace.open(id);
  }

  text(piece) {
    this.said += piece;
    const next = prose(this.said, this.cite);
    next.classList.add("caret");
    this.body.replaceWith(next);
    this.body = next;
  }

  think(piece) {
    this.thought.classList.remove("hidden");
    this.thought.append(piece);
  }

  notice(one) {
    this.notices.append(h("span", { class: "tag warn", title: one.kind.replace("DEGRADATION_KIND_", "") }, one.message));
  }

  fail(message) {
    this.body.classList.remove("caret");
    this.notices.append(h("span", { class: "tag bad" }, message));
  }

  complete(completed, runId) {
    this.body.classList.remove("caret");
    if (completed.state !== "RUN_STATE_COMPLETED") {
      this.fail(completed.error?.message || completed.state);
      return;
    }
    const { answer, usage, steps, model } = completed.response;
    const next = (answer.json && json(answer.json)) || prose(answer.text, this.cite);
    this.body.replaceWith(next);
    this.body = next;
    const weak = answer.support.filter((one) => !one.supported);
    if (weak.length) {
      const chars = [...answer.text];
      weak.forEach((one) => this.notices.append(h("span", { class: "tag warn unsupported" }, chars.slice(one.start, one.end).join(""))));
    }
    const took = Math.max(0, ...steps.map((step) => step.start_ms + step.ms));
    this.foot.append(h("span", { class: "faint" }, [model, ms(took), `${usage?.prompt_tokens || 0} + ${usage?.completion_tokens || 0}`].filter(Boolean).join(" · ")),
      this.judge(runId, "up", "useful", "FEEDBACK_VERDICT_USEFUL"), this.judge(runId, "down", "notUseful", "FEEDBACK_VERDICT_NOT_USEFUL"));
  }

  judge(runId, picture, word, verdict) {
    const button = h("button", { class: "ghost", type: "button", title: t(word), "aria-label": t(word), "aria-pressed": "false", onclick: async () => {
      try {
        await call("orchestrator", "SubmitFeedback", { run_id: runId, request_id: requestId(), feedback: { verdict } });
        this.foot.querySelectorAll("button").forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
        toast(t("thanks"));
      } catch (error) { toast(error.message, true); }
    } }, icon(picture));
    return button;
  }
}
