// Memory: what is remembered of a user, where it came from, and how to change or forget it.

import { all, call, stream } from "../api.js";
import { confirmDialog, dialog, empty, field, h, iconButton, replace, toast } from "../dom.js";
import { day, moment, t, term } from "../i18n.js";
import { requestId, save, state } from "../state.js";

const ORIGIN = { ORIGIN_LLM: "origin_llm", ORIGIN_RULES: "origin_rules", ORIGIN_CALLER: "origin_caller" };
const TABS = { facts, notes, summaries, readings, turns };

export async function memoryView(root) {
  let tab = "facts";
  const body = h("div", { class: "stack" });
  const tabs = h("div", { class: "tabs", role: "tablist" });
  const user = h("input", { value: state.user, autocomplete: "off", onchange: () => { save({ user: user.value.trim() }); draw(); } });
  replace(root, h("div", { class: "page" },
    h("header", {}, h("div", {}, h("h1", {}, t("memory")), h("p", { class: "lead" }, t("memoryLead"))), field(t("user"), user),
      h("div", { class: "row" }, h("button", { class: "btn", type: "button", onclick: exportUser }, t("exportAll")),
        h("button", { class: "btn danger", type: "button", onclick: () => erase(draw) }, t("eraseAll")))),
    tabs, body));

  async function draw() {
    replace(tabs, Object.keys(TABS).map((name) => h("button", { type: "button", role: "tab", "aria-selected": String(name === tab), onclick: () => { tab = name; draw(); } }, t(name))));
    try {
      if (state.user) await TABS[tab](body, draw);
    } catch (error) {
      replace(body, empty(error.message));
    }
  }
  await draw();
}

async function facts(body, draw, asOf = "") {
  const request = { user_id: state.user, page_size: 200 };
  if (asOf) request.as_of = new Date(`${asOf}T23:59:59`).toISOString();
  const found = await all("memory", "ListFacts", request, "facts");
  const picker = h("input", { type: "date", value: asOf, max: new Date().toISOString().slice(0, 10), onchange: () => facts(body, draw, picker.value === picker.max ? "" : picker.value) });
  found.sort((a, b) => Number(b.kind === "FACT_KIND_PREFERENCE") - Number(a.kind === "FACT_KIND_PREFERENCE"));
  replace(body, h("div", { class: "row" }, field(t("asOf"), picker), asOf && h("button", { class: "ghost", type: "button", onclick: () => facts(body, draw) }, t("now")),
    h("div", { class: "grow" }), h("button", { class: "btn", type: "button", onclick: () => putFact(draw) }, t("addFact"))),
  found.length ? h("div", { class: "grid" }, found.map((fact) => factCard(fact, draw))) : empty(t("noFacts")));
}

function factCard(fact, draw) {
  const preference = fact.kind === "FACT_KIND_PREFERENCE";
  return h("article", { class: "card fact", "data-attribute": fact.attribute },
    h("div", { class: "row" }, h("span", { class: preference ? "tag warn" : "tag good" }, preference ? t("preference") : t("fact")), h("span", { class: "mono faint" }, fact.attribute)),
    h("div", { class: "value" }, fact.value), h("p", { class: "lead" }, fact.statement),
    h("p", { class: "faint" }, [`${t("since")} ${day(fact.valid_from)}`, fact.source_count && `${fact.source_count} ${t(fact.source_count === 1 ? "source1" : "sourcesN")}`, t(ORIGIN[fact.origin])].filter(Boolean).join(" · ")),
    h("div", { class: "row" },
      h("button", { class: "ghost", type: "button", onclick: () => correct(fact, draw) }, t("correct")),
      h("button", { class: "ghost", type: "button", onclick: () => history(fact) }, t("historyOf")),
      h("button", { class: "ghost", type: "button", onclick: () => forget(fact, draw) }, t("forget"))));
}

async function act(work, done, draw) {
  try {
    await work();
    toast(done);
  } catch (error) {
    toast(error.message, true);
  }
  await draw();
}

async function ask(title, label, value) {
  return dialog((close) => {
    const input = h("input", { value, required: true });
    return h("form", { class: "stack", onsubmit: (event) => { event.preventDefault(); close(input.value.trim()); } }, h("h1", {}, title), field(label, input),
      h("div", { class: "row end" }, h("button", { class: "btn", type: "button", onclick: () => close() }, t("cancel")), h("button", { class: "btn primary" }, t("apply"))));
  });
}

async function correct(fact, draw) {
  const value = await ask(`${t("correct")}: ${fact.attribute}`, t("newValue"), fact.value);
  if (!value) return;
  await act(() => call("memory", "CorrectFact", { request_id: requestId(), user_id: state.user, fact_id: fact.fact_id, value, etag: fact.etag }), t("corrected"), draw);
}

async function forget(fact, draw) {
  const purge = h("input", { type: "checkbox" });
  const sure = await dialog((close) => h("form", { class: "stack", onsubmit: (event) => { event.preventDefault(); close(true); } },
    h("h1", {}, `${t("forget")}: ${fact.value}`), h("p", { class: "lead" }, t("forgetText")), h("label", { class: "check" }, purge, t("purge")),
    h("div", { class: "row end" }, h("button", { class: "btn", type: "button", onclick: () => close(false) }, t("cancel")), h("button", { class: "btn danger" }, t("forget")))));
  if (!sure) return;
  await act(() => call("memory", "RetractFact", { request_id: requestId(), user_id: state.user, fact_id: fact.fact_id, purge: purge.checked }), t("forgotten"), draw);
}

async function putFact(draw) {
  const attribute = h("input", { required: true, placeholder: t("attribute") });
  const value = h("input", { required: true, placeholder: t("value") });
  const preference = h("input", { type: "checkbox" });
  const sure = await dialog((close) => h("form", { class: "stack", onsubmit: (event) => { event.preventDefault(); close(true); } }, h("h1", {}, t("addFact")), attribute, value,
    h("label", { class: "check" }, preference, t("preference")), h("div", { class: "row end" }, h("button", { class: "btn primary" }, t("apply")))));
  if (!sure) return;
  await act(() => call("memory", "PutFact", { request_id: requestId(), user_id: state.user, attribute: attribute.value.trim(), value: value.value.trim(),
    kind: preference.checked ? "FACT_KIND_PREFERENCE" : "FACT_KIND_FACT", cardinality: "CARDINALITY_ONE" }), t("corrected"), draw);
}

async function history(fact) {
  const found = await all("memory", "GetFactHistory", { user_id: state.user, attribute: fact.attribute, page_size: 100 }, "facts");
  await dialog((close) => h("article", { class: "stack" }, h("div", { class: "row" }, h("h1", { class: "grow" }, `${t("historyOf")}: ${fact.attribute}`),
    iconButton("close", t("close"), () => close())),
  h("ol", { class: "history" }, found.reverse().map((one) => h("li", { class: one.valid_to || one.recorded_to ? "" : "now" }, h("b", {}, one.value),
    h("span", { class: "faint" }, ` ${day(one.valid_from)} → ${one.valid_to ? day(one.valid_to) : t("now")} · ${term(one.state, "FACT_STATE_")}`),
    one.sources.map((source) => source.quote && h("div", { class: "quote" }, `“${source.quote}”`)))))), "side");
}

async function notes(body, draw, query = "") {
  const found = query
    ? (await call("memory", "SearchEpisodes", { user_id: state.user, query, top_k: 20, ungated: true })).hits.map((hit) => ({ ...hit.episode, hit }))
    : await all("memory", "ListEpisodes", { user_id: state.user, page_size: 100 }, "episodes");
  const input = h("input", { class: "input", type: "search", value: query, placeholder: t("searchNotes"), "aria-label": t("searchNotes"), onchange: () => notes(body, draw, input.value.trim()) });
  replace(body, input, found.length ? found.map((note) => h("article", { class: "card stack" }, h("p", {}, note.note),
    h("div", { class: "row" }, h("span", { class: "faint grow" }, [moment(note.event_time), note.session_id, t(ORIGIN[note.origin])].join(" · ")),
      note.hit && h("span", { class: "tag info" }, `${note.hit.score.toFixed(2)} = ${note.hit.relevance.toFixed(2)} × ${note.hit.decay.toFixed(2)}`),
      h("button", { class: "ghost", type: "button", onclick: async () => {
        const text = await ask(t("correct"), t("newValue"), note.note);
        if (text) await act(() => call("memory", "CorrectEpisode", { request_id: requestId(), user_id: state.user, episode_id: note.episode_id, note: text, etag: note.etag }), t("corrected"), draw);
      } }, t("correct")),
      h("button", { class: "ghost", type: "button", onclick: () => act(() => call("memory", "DeleteEpisode", { request_id: requestId(), user_id: state.user, episode_id: note.episode_id }), t("forgotten"), draw) }, t("forget"))))) : empty(t("noItems")));
}

async function summaries(body) {
  const sessions = await all("memory", "ListSessions", { user_id: state.user, page_size: 50 }, "sessions", 50);
  const asked = ["", ...sessions.map((one) => one.session_id)];
  const found = (await Promise.all(asked.map((session_id) => call("memory", "GetSummary", { user_id: state.user, session_id }).catch(() => null)))).filter(Boolean);
  replace(body, found.length ? found.map(({ summary }) => h("article", { class: "card stack" }, h("div", { class: "row" }, h("span", { class: "tag good" }, summary.session_id || t("user")),
    h("span", { class: "faint" }, `v${summary.version} · ${moment(summary.create_time)} · ${t(ORIGIN[summary.origin])}`)), h("div", { class: "quote" }, summary.text))) : empty(t("noItems")));
}

async function readings(body, draw) {
  const found = await all("memory", "ListReadings", { user_id: state.user, page_size: 100 }, "readings");
  replace(body, found.length ? h("div", { class: "grid" }, found.map((one) => h("article", { class: "card stack" }, h("h2", {}, one.title), h("p", { class: "lead" }, one.summary.slice(0, 240)),
    h("p", { class: "faint" }, `${moment(one.read_time)} · ×${one.weight.toFixed(2)}`),
    h("div", { class: "row" }, h("button", { class: "ghost", type: "button", onclick: () => act(() => call("memory", "DeleteReading", { request_id: requestId(), user_id: state.user, document_id: one.document_id }), t("forgotten"), draw) }, t("forget")))))) : empty(t("noItems")));
}

async function turns(body, draw) {
  const { turns: found } = await call("memory", "ListTurns", { user_id: state.user, page_size: 50 });
  replace(body, found.length ? found.map((turn) => h("article", { class: "card stack" }, turn.messages.map((message) => h("p", {}, h("span", { class: "tag" }, term(message.role, "ROLE_")), " ", message.text)),
    h("div", { class: "row" }, h("span", { class: "faint grow" }, `${moment(turn.event_time)} · ${turn.session_id} #${turn.sequence}`),
      turn.flags.map((flag) => h("span", { class: "tag bad" }, flag)),
      h("button", { class: "ghost", type: "button", onclick: () => act(() => call("memory", "DeleteTurn", { request_id: requestId(), user_id: state.user, turn_id: turn.turn_id }), t("forgotten"), draw) }, t("forget"))))) : empty(t("noItems")));
}

async function exportUser() {
  const lines = [];
  try {
    for await (const part of stream("memory", "ExportUser", { user_id: state.user })) lines.push(...part.lines);
  } catch (error) {
    toast(error.message, true);
    return;
  }
  const link = h("a", { href: URL.createObjectURL(new Blob([lines.join("\n")], { type: "application/x-ndjson" })), download: `${state.user}.jsonl` });
  link.click();
  URL.revokeObjectURL(link.href);
}

async function erase(draw) {
  const typed = await ask(t("eraseTitle"), t("eraseText"), "");
  if (typed !== state.user) return;
  if (!(await confirmDialog(t("eraseTitle"), state.user, t("eraseAll")))) return;
  try {
    const receipt = await call("orchestrator", "EraseUser", { request_id: requestId(), user_id: state.user });
    toast(`${t("erased")} ${receipt.memory_receipt_id}`);
  } catch (error) {
    toast(error.message, true);
  }
  await draw();
}
