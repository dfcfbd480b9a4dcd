// Chat: a live answer with its trace beside it; the session as memory has it.

import { all, call, stream } from "../api.js";
import { empty, field, h, icon, iconButton, replace, select, toast } from "../dom.js";
import { moment, t, term } from "../i18n.js";
import { newSession, requestId, save, state } from "../state.js";
import { Answer, said } from "./bubble.js";
import { Composer } from "./composer.js";
import { Trace } from "./trace.js";

const INTENTS = ["INTENT_CHAT", "INTENT_DOCUMENT_QUESTION", "INTENT_PERSONALISED_SUMMARY", "INTENT_STRUCTURED_PLAN", "INTENT_EXTRACT"];
const SHOWN_TURNS = 30;
const SHOWN_SESSIONS = 30;
const NEAR_END = 120;

export async function chatView(root) {
  const inner = h("div", { class: "inner", role: "log", "aria-live": "polite" });
  const log = h("div", { class: "log", tabIndex: 0, "aria-label": t("chat") }, inner);
  const traceNode = h("aside", { class: "trace", "aria-label": t("trace") });
  const trace = new Trace(traceNode);
  const composer = new Composer((text) => send(text));
  let running = null;
  let shown = 0;

  const collections = await all("retriever", "ListCollections", {}, "collections").catch(() => []);
  if (state.collection && !collections.some((one) => one.collection_id === state.collection)) save({ collection: "", document: "" });
  const bar = new Bar(collections, traceNode, open, () => composer.drawScope());
  replace(root, h("div", { class: "chat" }, h("section", { class: "talk" }, bar.node, log, composer.node), traceNode));

  function greet() {
    replace(inner, empty(t("welcome"), h("div", { class: "starters" }, ["starter1", "starter2", "starter3"].map((name) =>
      h("button", { class: "btn", type: "button", onclick: () => send(t(name)) }, t(name))))));
  }

  /** Show the session that is current now: what was said in it, or a greeting. */
  async function open() {
    shown += 1;
    const mine = shown;
    running?.abort();
    trace.reset();
    inner.replaceChildren();
    const asked = { user_id: state.user, session_id: state.session, page_size: SHOWN_TURNS };
    const { turns } = state.user ? await call("memory", "ListTurns", asked).catch(() => ({ turns: [] })) : { turns: [] };
    if (mine !== shown) return;
    inner.prepend(...turns.reverse().flatMap((turn) => turn.messages.map(said)));
    if (!inner.childElementCount) greet();
    log.scrollTop = log.scrollHeight;
  }

  async function send(text) {
    if (running) return;
    inner.querySelector(".empty")?.remove();
    const answer = new Answer(trace);
    inner.append(said({ role: "ROLE_USER", text }), answer.node);
    log.scrollTop = log.scrollHeight;
    trace.reset();
    running = new AbortController();
    composer.busy(() => running.abort());
    try {
      const body = { request_id: requestId(), input: input(text) };
      for await (const { event } of stream("orchestrator", "StreamChat", body, running.signal)) {
        // Who reads further up is left there.
        const following = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END;
        take(event, answer);
        if (following) log.scrollTop = log.scrollHeight;
      }
    } catch (error) {
      answer.fail(error.name === "AbortError" ? t("stopped") : error.message);
    } finally {
      running = null;
      composer.idle();
      bar.sessions();
    }
  }

  function take(event, answer) {
    if (event.step_started) trace.stepStarted(event.step_started);
    else if (event.step_finished) trace.stepFinished(event.step_finished);
    else if (event.context_ready) trace.contextReady(event.context_ready);
    else if (event.tool_call) trace.tool(event.tool_call);
    else if (event.text_delta) answer.text(event.text_delta.text);
    else if (event.thinking_delta) answer.think(event.thinking_delta.text);
    else if (event.notice) answer.notice(event.notice.degradation);
    else if (event.completed) {
      trace.finished(event.completed.response?.answer, event.run_id);
      answer.complete(event.completed, event.run_id);
    }
  }

  composer.focus();
  bar.sessions();
  open();
  return () => running?.abort();
}

function input(message) {
  const scope = state.collection ? { collection_id: state.collection } : {};
  if (state.collection && state.document) scope.document_ids = [state.document];
  return {
    message, user_id: state.user, session_id: state.session, intent: state.intent || "INTENT_UNSPECIFIED", scope,
    use_memory: state.memory, use_retrieval: state.retrieval, use_tools: state.tools, verify: state.verify,
    time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC",
  };
}

/** Who speaks, about what, in which session. `reopen` shows another session. */
class Bar {
  constructor(collections, traceNode, reopen, rescope) {
    this.reopen = reopen;
    const user = h("input", { value: state.user, autocomplete: "off", onchange: () => this.go({ user: user.value.trim(), session: newSession() }) });
    const known = [["", t("none")], ...collections.map((one) => [one.collection_id, one.display_name || one.collection_id])];
    const collection = select(known, state.collection, (value) => { save({ collection: value, document: "" }); rescope(); });
    const intent = select([["", t("auto")], ...INTENTS.map((key) => [key, term(key, "INTENT_")])], state.intent, (value) => save({ intent: value }));
    this.session = h("select", { onchange: () => this.go({ session: this.session.value }) });
    this.node = h("header", { class: "chatbar folded" },
      field(t("user"), user), h("div", { class: "fold" }, field(t("collection"), collection)), h("div", { class: "fold" }, field(t("intent"), intent)),
      h("div", { class: "grow" }), field(t("session"), this.session),
      h("div", { class: "row actions" },
        h("button", { class: "ghost", type: "button", title: t("newSession"), "aria-label": t("newSession"), onclick: () => this.go({ session: newSession() }) }, icon("plus"), h("span", { class: "wide" }, t("newSession"))),
        h("button", { class: "ghost fold", type: "button", onclick: () => this.end() }, t("endSession")),
        iconButton("sliders", t("options"), () => this.node.classList.toggle("folded"), "ghost narrow"),
        iconButton("pulse", t("trace"), () => traceNode.classList.toggle("open"), "ghost tracetoggle")));
    this.draw([]);
  }

  async sessions() {
    if (!state.user) return;
    const page = await call("memory", "ListSessions", { user_id: state.user, page_size: SHOWN_SESSIONS }).catch(() => ({ sessions: [] }));
    this.draw(page.sessions.filter((one) => !one.session_id.startsWith("run:")));
  }

  draw(found) {
    const others = found.filter((one) => one.session_id !== state.session);
    replace(this.session, h("option", { value: state.session, selected: true }, t("thisSession")),
      others.map((one) => h("option", { value: one.session_id }, `${moment(one.last_time)} · ${one.turns}`)));
  }

  go(change) {
    save(change);
    this.sessions();
    this.reopen();
  }

  async end() {
    try {
      await call("memory", "EndSession", { request_id: requestId(), user_id: state.user, session_id: state.session });
      toast(t("sessionEnded"));
    } catch (error) {
      if (error.status !== 404) toast(error.message, true);
    }
    this.go({ session: newSession() });
  }
}
