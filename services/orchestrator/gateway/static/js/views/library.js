// Library: collections and their documents, uploads with progress.

import { all, call, stream } from "../api.js";
import { bar, confirmDialog, empty, h, replace, toast } from "../dom.js";
import { count, moment, t, term } from "../i18n.js";
import { requestId, save, state } from "../state.js";

const LIMIT = 12 * 1024 * 1024;
const KINDS = /\.(txt|md|markdown|html?|pdf|docx|pptx|xlsx|epub|csv|json|log|rst)$/i;

export async function libraryView(root) {
  const list = h("div", { class: "grid" });
  const detail = h("section", { class: "stack" });
  const name = h("input", { class: "input", required: true, pattern: "[a-z0-9][a-z0-9_\\-]{0,63}", placeholder: t("newCollection"), "aria-label": t("newCollection") });
  const make = async (event) => {
    event.preventDefault();
    try {
      await call("retriever", "CreateCollection", { request_id: requestId(), collection_id: name.value });
      save({ collection: name.value });
      name.value = "";
    } catch (error) { toast(error.message, true); }
    await draw();
  };
  replace(root, h("div", { class: "page" }, h("header", {}, h("div", {}, h("h1", {}, t("library")), h("p", { class: "lead" }, t("libraryLead"))),
    h("form", { class: "row", onsubmit: make }, h("div", { class: "grow" }, name), h("button", { class: "btn primary" }, t("create")))), list, detail));

  async function draw() {
    const collections = await all("retriever", "ListCollections", { page_size: 200 }, "collections");
    replace(list, collections.map((one) => h("button", { class: one.collection_id === state.collection ? "source cited" : "source", type: "button",
      onclick: () => { save({ collection: one.collection_id, document: "" }); draw(); } },
    h("b", {}, one.display_name || one.collection_id), h("span", { class: "faint" }, `${count(one.document_count)} ${t("documents")} · ${count(one.chunk_count)} ${t("chunks")}`),
    h("span", { class: "mono faint clip" }, one.model_id))));
    const current = collections.find((one) => one.collection_id === state.collection);
    if (current) await documents(detail, current, draw);
    else replace(detail, empty(t("pickCollection")));
  }
  await draw();
}

async function documents(node, collection, draw) {
  const found = await all("retriever", "ListDocuments", { collection_id: collection.collection_id, page_size: 200 }, "documents", 1000);
  const progress = h("div", { class: "stack", "aria-live": "polite" });
  const take = (files) => upload(collection.collection_id, files, progress, draw);
  const input = h("input", { type: "file", multiple: true, class: "sr", id: "files", onchange: () => take([...input.files]) });
  const drop = h("div", { class: "drop", ondragover: (event) => { event.preventDefault(); drop.classList.add("over"); }, ondragleave: () => drop.classList.remove("over"),
    ondrop: (event) => { event.preventDefault(); drop.classList.remove("over"); take([...event.dataTransfer.files]); } },
  t("drop"), " ", h("button", { class: "btn", type: "button", onclick: () => input.click() }, t("choose")), input, h("p", { class: "faint" }, t("kinds")));
  const rows = found.map((one) => h("tr", {}, h("td", {}, h("b", {}, one.title), h("div", { class: "mono faint" }, one.document_id)),
    h("td", {}, h("span", { class: one.state === "DOCUMENT_STATE_READY" ? "tag good" : one.state === "DOCUMENT_STATE_FAILED" ? "tag bad" : "tag warn" }, term(one.state, "DOCUMENT_STATE_")),
      one.error?.message && h("div", { class: "faint" }, one.error.message)),
    h("td", {}, count(one.text_chars)), h("td", {}, count(one.chunk_count), one.pending_vectors > 0 && h("div", { class: "faint" }, `${one.pending_vectors} ${t("pending")}`)),
    h("td", { class: "faint" }, moment(one.update_time)),
    h("td", { class: "row end" }, h("button", { class: "ghost", type: "button", onclick: () => { save({ document: one.document_id, documentTitle: one.title }); location.hash = "#/chat"; } }, t("askDocument")),
      h("button", { class: "ghost", type: "button", onclick: () => remove(collection.collection_id, one, draw) }, t("remove")))));
  replace(node, h("h1", {}, collection.display_name || collection.collection_id), drop, progress,
    rows.length ? h("div", { class: "card scroll" }, h("table", { class: "table" }, h("thead", {}, h("tr", {}, [t("title"), t("state"), t("size"), t("chunks"), t("time"), ""].map((text) => h("th", {}, text)))), h("tbody", {}, rows))) : empty(t("noItems")));
}

async function upload(collection, files, progress, draw) {
  const usable = files.filter((file) => {
    const problem = file.size > LIMIT ? "tooLarge" : KINDS.test(file.name) ? "" : "wrongKind";
    if (problem) toast(`${file.name}: ${t(problem)}`, true);
    return !problem;
  });
  for (const file of usable) {
    const line = h("div", { class: "card stack" }, h("b", {}, file.name), h("span", { class: "faint" }, t("uploading")), bar(0));
    progress.append(line);
    try {
      const { job } = await call("retriever", "UpsertDocuments", { request_id: requestId(), collection_id: collection,
        documents: [{ document_id: file.name, uri: file.name, data: await base64(file) }] });
      for await (const message of stream("retriever", "WatchJob", { job_id: job.job_id })) {
        const now = message.job;
        line.children[1].textContent = `${term(now.state, "JOB_STATE_")} ${now.done}/${now.total || "?"} ${now.unit}`;
        line.replaceChild(bar(now.state === "JOB_STATE_SUCCEEDED" ? 1 : Number(now.done) / Math.max(1, Number(now.total))), line.children[2]);
        if (now.item_errors.length) toast(`${file.name}: ${now.item_errors[0].error.message}`, true);
        else if (now.state === "JOB_STATE_SUCCEEDED") toast(`${file.name}: ${t("ingested")}`);
      }
    } catch (error) {
      line.children[1].textContent = error.message;
    }
  }
  await draw();
}

async function remove(collection, one, draw) {
  if (!(await confirmDialog(`${t("remove")}: ${one.title}`, t("removeText"), t("remove")))) return;
  try {
    await call("retriever", "DeleteDocuments", { request_id: requestId(), collection_id: collection, document_ids: [one.document_id] });
  } catch (error) { toast(error.message, true); }
  await draw();
}

async function base64(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text);
}
