// Search: every score taken apart.

import { all, call } from "../api.js";
import { bar, empty, field, h, replace, select } from "../dom.js";
import { ms, t, term } from "../i18n.js";
import { save, state } from "../state.js";

const LEGS = { LEG_DENSE: "dense", LEG_LEXICAL: "lexical", LEG_PHRASE: "phrase" };
const CONFIDENCE = { CONFIDENCE_HIGH: "good", CONFIDENCE_MEDIUM: "good", CONFIDENCE_LOW: "warn", CONFIDENCE_NONE: "bad" };

export async function searchView(root) {
  const [collections, recipes] = await Promise.all([all("retriever", "ListCollections", {}, "collections"), call("retriever", "ListRecipes")]);
  let recipe = "";
  let topK = 8;
  const query = h("input", { type: "search", required: true, autocomplete: "off" });
  const results = h("div", { class: "stack", "aria-live": "polite" });
  const names = collections.map((one) => [one.collection_id, one.display_name || one.collection_id]);
  // A chat may do without a collection, a search never does; the choice of the chat stays as it is.
  const known = names.some(([id]) => id === state.collection);
  let collection = known ? state.collection : names[0]?.[0] || "";
  const form = h("form", { class: "card row", onsubmit: run },
    h("div", { class: "grow ask" }, field(t("query"), query)),
    field(t("collection"), select(names.length ? names : [["", t("noCollections")]], collection, (value) => {
      collection = value;
      save({ collection: value, document: "", documentTitle: "" });
    }, { disabled: !names.length })),
    field(t("recipe"), select([["", t("auto")], ...recipes.recipes.map((one) => [one.name, one.name])], recipe, (value) => { recipe = value; })),
    field(t("topK"), select([5, 8, 20, 50].map((n) => [String(n), String(n)]), "8", (value) => { topK = Number(value); })),
    h("button", { class: "btn primary" }, t("run")));
  replace(root, h("div", { class: "page" }, h("header", {}, h("div", {}, h("h1", {}, t("search")), h("p", { class: "lead" }, t("searchLead")))), form, results));
  query.focus();

  async function run(event) {
    event.preventDefault();
    if (!collection) { replace(results, empty(t("addCollection"))); return; }
    try {
      const answer = await call("retriever", "Search", { query: query.value, scopes: [{ collection_id: collection }], recipe, top_k: topK });
      replace(results, summary(answer), answer.hits.length ? answer.hits.map(hit) : empty(t("nothing")));
    } catch (error) { replace(results, empty(error.message)); }
  }
}

function summary(answer) {
  const explained = answer.explanation || {};
  const gate = h("div", { class: "grow" }, bar(answer.confidence_score, "rerank", t("confidence")));
  const line = h("i", { class: "gate" });
  line.style.left = `${(explained.gate_threshold || 0) * 100}%`;
  gate.firstChild.append(line);
  return h("section", { class: "card stack" },
    h("div", { class: "gatebox" }, h("span", { class: `tag ${CONFIDENCE[answer.confidence] || ""}` }, `${t("confidence")} ${term(answer.confidence, "CONFIDENCE_")}`),
      gate, h("span", { class: "mono" }, `${answer.confidence_score.toFixed(2)} / ${t("gate")} ${(explained.gate_threshold || 0).toFixed(2)}`),
      answer.held_back > 0 && h("span", { class: "tag warn" }, `${answer.held_back} ${t("heldBack")}`)),
    h("div", { class: "row" }, (explained.query_tokens || []).slice(0, 40).map((token) => h("span", { class: "tag mono" }, token))),
    h("p", { class: "faint" }, answer.timings.map((one) => `${term(one.step)} ${ms(one.ms)}`).join(" · ")),
    answer.degradations.length > 0 && h("div", { class: "row" }, answer.degradations.map((one) => h("span", { class: "tag warn", title: one.message }, term(one.kind, "DEGRADATION_KIND_")))));
}

function hit(one, index) {
  const explained = one.explanation || { legs: [] };
  const rows = explained.legs.flatMap((leg) => [h("span", {}, `${term(LEGS[leg.leg])} #${leg.rank}`), bar(leg.normalized, LEGS[leg.leg], LEGS[leg.leg]),
    h("span", { class: "mono faint" }, `${leg.score.toFixed(3)} → ${leg.contribution.toFixed(3)}`)]);
  rows.push(h("span", {}, t("fused")), bar(explained.fused_score, ""), h("span", { class: "mono faint" }, (explained.fused_score || 0).toFixed(3)));
  if (explained.rerank_score !== undefined && explained.rerank_score !== null) {
    rows.push(h("span", {}, t("rerank")), bar(explained.rerank_score, "rerank"), h("span", { class: "mono faint" }, explained.rerank_score.toFixed(3)));
  }
  const node = h("article", { class: "card hit" },
    h("div", { class: "row" }, h("span", { class: "tag info" }, `#${index + 1}`), h("b", { class: "grow" }, one.title), h("span", { class: "mono" }, `${t("finalScore")} ${one.score.toFixed(3)}`)),
    h("p", { class: "faint" }, [one.chunk.section_path.join(" › "), term(one.chunk.kind, "CHUNK_KIND_"), explained.quality_weight && `×${explained.quality_weight.toFixed(2)}`,
      one.other_source_count > 0 && `+${one.other_source_count}`].filter(Boolean).join(" · ")),
    h("div", { class: "text" }, one.chunk.text), h("div", { class: "legs" }, rows),
    h("button", { class: "ghost", type: "button", onclick: () => node.classList.toggle("open") }, t("expand")));
  return node;
}
