// Jobs of memory and retriever; failed ones can be replayed.

import { call } from "../api.js";
import { bar, empty, h, replace, toast } from "../dom.js";
import { moment, t, term } from "../i18n.js";
import { requestId } from "../state.js";

const TONE = { JOB_STATE_SUCCEEDED: "good", JOB_STATE_FAILED: "bad", JOB_STATE_RETRYING: "warn", JOB_STATE_RUNNING: "info" };

export async function jobsView(root) {
  const failed = h("input", { type: "checkbox", onchange: draw });
  const body = h("div", { class: "stack" });
  replace(root, h("div", { class: "page" }, h("header", {}, h("div", {}, h("h1", {}, t("jobs")), h("p", { class: "lead" }, t("jobsLead"))),
    h("label", { class: "check" }, failed, t("failedOnly")), h("button", { class: "btn", type: "button", onclick: draw }, t("refresh"))), body));

  async function draw() {
    const states = failed.checked ? ["JOB_STATE_FAILED"] : [];
    const pages = await Promise.all(["memory", "retriever"].map(async (service) => {
      const page = await call(service, "ListJobs", { states, page_size: 50 }).catch((error) => { toast(error.message, true); return { jobs: [] }; });
      return page.jobs.map((job) => ({ ...job, service }));
    }));
    const jobs = pages.flat().sort((a, b) => b.create_time.localeCompare(a.create_time));
    replace(body, jobs.length ? h("div", { class: "card scroll" }, h("table", { class: "table" }, h("thead", {}, h("tr", {}, [t("kind"), t("state"), t("progress"), t("attempts"), t("time"), ""].map((text) => h("th", {}, text)))),
      h("tbody", {}, jobs.map(row)))) : empty(t("noItems")));
  }

  function row(job) {
    const act = (method) => async () => {
      try { await call(job.service, method, { job_id: job.job_id, request_id: requestId() }); } catch (error) { toast(error.message, true); }
      await draw();
    };
    const ended = ["JOB_STATE_FAILED", "JOB_STATE_CANCELLED"].includes(job.state);
    const open = ["JOB_STATE_QUEUED", "JOB_STATE_RUNNING", "JOB_STATE_RETRYING"].includes(job.state);
    return h("tr", {}, h("td", {}, h("b", {}, term(job.kind)), h("div", { class: "faint" }, term(job.service))),
      h("td", {}, h("span", { class: `tag ${TONE[job.state] || ""}` }, term(job.state, "JOB_STATE_")), job.error?.message && h("div", { class: "faint" }, job.error.message)),
      h("td", {}, Number(job.total) > 0 ? [bar(Number(job.done) / Number(job.total)), h("span", { class: "faint" }, `${job.done}/${job.total} ${term(job.unit)}`)] : ""),
      h("td", {}, String(job.attempts)), h("td", { class: "faint" }, moment(job.create_time)),
      h("td", {}, ended && h("button", { class: "ghost", type: "button", onclick: act("ReplayJob") }, t("replay")), open && h("button", { class: "ghost", type: "button", onclick: act("CancelJob") }, t("cancel"))));
  }
  await draw();
}
