/**
 * The client against running services. Each test prints what it got. The services are started, and told to
 * fail, by what starts this program: see tests/support/rig.py of the project.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import {
  CancelledError,
  type ClientOptions,
  DeadlineExceededError,
  ErrorReason,
  InvalidArgumentError,
  memory,
  metadata,
  NianlunClient,
  NianlunError,
  NotFoundError,
  newRequestId,
  orchestrator,
  UnauthenticatedError,
  UnavailableError,
} from "../../src/index.js";

const client = new NianlunClient();
after(() => client.close());

test("append: a turn is there in another session at once, also when it is sent twice", async () => {
  const requestId = newRequestId();
  const said = ["ts-append", "s-1", "我叫陈川，主要写 TypeScript。", "好的，记下了。"] as const;
  const receipt = await client.appendTurn(...said, { requestId });
  const again = await client.appendTurn(...said, { requestId });
  const { turns } = await client.memory.listTurns({ userId: "ts-append" });
  console.log(`append: turn ${receipt.turnId} #${receipt.sequence}, stored ${turns.length} times`);
  assert.equal(receipt.sequence, 1n);
  assert.deepEqual(again, receipt);
  assert.deepEqual(
    turns.map((turn) => turn.messages.map((message) => message.text)),
    [["我叫陈川，主要写 TypeScript。", "好的，记下了。"]],
  );
});

test("load: what was said in one session is known in the next", async () => {
  const receipt = await client.appendTurn("ts-load", "s-1", "我叫陈川，住在杭州。");
  const more = { sessionId: "s-2", atLeast: receipt.position };
  const loaded = await client.loadMemory("ts-load", "我住在哪里？", more);
  console.log(`load: ${loaded.freshTurns.length} fresh turns, ${loaded.blocks.length} blocks`);
  assert.match(loaded.rendered, /杭州/);
  const stranger = await client.loadMemory("ts-load-other", "我住在哪里？");
  assert.doesNotMatch(stranger.rendered, /杭州/);
});

test("search: documents are found in both languages, with their metadata", async () => {
  await client.retriever.createCollection({ collectionId: "ts-papers" });
  const answer = await client.upsertDocuments("ts-papers", [
    {
      documentId: "sirnn",
      title: "SiRNN",
      content: { case: "text", value: "SiRNN runs secure inference of recurrent networks." },
      metadata: metadata({ year: 2021, share: 0.5 }),
    },
    {
      documentId: "tea",
      title: "茶",
      content: { case: "text", value: "龙井茶产于杭州西湖一带，以清香著称。" },
    },
  ]);
  const states: number[] = [];
  const job = await client.waitForJob(answer, { onProgress: (seen) => states.push(seen.state) });
  const english = await client.search("secure inference of recurrent networks", "ts-papers");
  const chinese = await client.search("龙井茶产自哪里？", "ts-papers", { topK: 1, explain: true });
  const found = [english, chinese].map(({ hits }) => hits[0]?.documentId);
  console.log(`search: job ${job.kind} did ${job.done} ${job.unit}; found ${found.join(", ")}`);
  assert.deepEqual(found, ["sirnn", "tea"]);
  assert.deepEqual(english.hits[0]?.metadata["year"]?.kind, { case: "intValue", value: 2021n });
  assert.deepEqual(english.hits[0]?.metadata["share"]?.kind, { case: "doubleValue", value: 0.5 });
  assert.ok(chinese.hits[0]?.explanation !== undefined);
  assert.ok(states.length > 0);
});

test("stream: events arrive in order, the last brings the answer", async () => {
  const stream = client.streamChat({
    userId: "ts-stream",
    sessionId: "s-1",
    message: "我叫什么名字？",
  });
  let streamed = "";
  const kinds: string[] = [];
  let sequence = 0n;
  for await (const { event, sequence: number } of stream) {
    assert.equal(number, ++sequence);
    kinds.push(event.case ?? "unknown");
    if (event.case === "textDelta") {
      streamed += event.value.text;
    }
  }
  const { response } = stream;
  console.log(`stream: ${kinds.length} events, answer "${response?.answer?.text}"`);
  assert.equal(kinds.at(-1), "completed");
  assert.ok(kinds.filter((kind) => kind === "textDelta").length > 1);
  assert.equal(response?.answer?.text, "你叫陈川，主要写代码。");
  assert.equal(streamed, "你叫陈川，主要写代码。");
  const { run } = await client.orchestrator.getRun({ runId: response?.runId ?? "" });
  assert.equal(run?.state, orchestrator.RunState.COMPLETED);
  const whole = await client.chat({
    userId: "ts-stream",
    sessionId: "s-1",
    message: "我叫什么名字？",
  });
  assert.equal(whole.answer?.text, "你叫陈川，主要写代码。");
});

test("cancel: leaving a chat, or aborting it, ends the run on the service", async () => {
  const input = { userId: "ts-cancel", sessionId: "s-1", message: "讲一个长故事" };
  let runId = "";
  for await (const { event, runId: id } of client.streamChat(input)) {
    runId = id;
    if (event.case === "textDelta") {
      break;
    }
  }
  const control = new AbortController();
  const aborted = async (): Promise<void> => {
    for await (const { event } of client.streamChat(input, { signal: control.signal })) {
      if (event.case === "textDelta") {
        control.abort("the reader left");
      }
    }
  };
  await assert.rejects(aborted, (error) => {
    assert.ok(error instanceof CancelledError);
    assert.equal(error.cause, "the reader left");
    return true;
  });
  const states = await runStates("ts-cancel");
  console.log(`cancel: run ${runId} and another are ${states.join(", ")}`);
  assert.deepEqual(states, ["CANCELLED", "CANCELLED"]);
});

test("deadline: a call on a dead line ends in time, and the line can be used again", async () => {
  const far = new NianlunClient({ targets: { memory: target("PROXIED") } });
  await far.loadMemory("ts-deadline", "?");
  await control("hold");
  const started = Date.now();
  const call = far.loadMemory("ts-deadline", "?", {}, { timeoutMs: 500 });
  const error = await call.catch((caught: unknown) => caught);
  const tookMs = Date.now() - started;
  await control("release");
  await far.loadMemory("ts-deadline", "?");
  far.close();
  console.log(`deadline: of 500 ms, ended after ${tookMs} ms: ${error}`);
  assert.ok(error instanceof DeadlineExceededError);
  assert.equal(error.retryable, true);
  assert.ok(tookMs >= 450 && tookMs < 5_000, `${tookMs} ms`);
});

test("bad key: refused as UNAUTHENTICATED, without a retry", async () => {
  for (const key of ["", "nl_nobody", `nl_${"x".repeat(43)}`]) {
    const stranger = new NianlunClient({ key });
    const error = await stranger.loadMemory("u", "?").catch((caught: unknown) => caught);
    stranger.close();
    console.log(`bad key: ${error}`);
    assert.ok(error instanceof UnauthenticatedError);
    assert.equal(error.reason, ErrorReason.UNAUTHENTICATED);
    assert.equal(error.code, status.UNAUTHENTICATED);
    assert.equal(error.retryable, false);
    assert.match(error.requestId, /^[0-9a-f-]{36}$/);
  }
});

test("errors: fields and resources are named", async () => {
  const refused = await client.appendTurn("", "s", "x").catch((caught: unknown) => caught);
  const missing = await client.search("x", "ts-nowhere").catch((caught: unknown) => caught);
  console.log(`errors: ${refused}\nerrors: ${missing}`);
  assert.ok(refused instanceof InvalidArgumentError);
  assert.deepEqual(
    refused.violations.map((item) => item.field),
    ["user_id"],
  );
  assert.ok(missing instanceof NotFoundError);
  assert.equal(missing.reason, ErrorReason.NOT_FOUND);
  assert.equal(missing.resource?.name, "ts-nowhere");
});

test("retry: an answer that is lost on the way is asked for again, and nothing happens twice", async () => {
  const far = new NianlunClient({ targets: { memory: target("PROXIED") } });
  await far.loadMemory("ts-lost", "?");
  await control("cut");
  const receipt = await far.appendTurn("ts-lost", "s-1", "只说一次。");
  const { turns } = await far.memory.listTurns({ userId: "ts-lost" });
  far.close();
  console.log(`retry: turn ${receipt.turnId} after a lost answer, stored ${turns.length} times`);
  assert.deepEqual(
    turns.map((turn) => turn.turnId),
    [receipt.turnId],
  );
});

test("restart: calls wait for a service that restarts, writes take effect once", async () => {
  const far = new NianlunClient({ targets: { memory: target("RESTARTED") } });
  const first = await far.appendTurn("ts-restart", "s-1", "我住在杭州。");
  await control("stop");
  const started = Date.now();
  const meanwhile = [
    far.appendTurn("ts-restart", "s-1", "我在等服务重启。"),
    far.loadMemory("ts-restart", "我住在哪里？"),
  ] as const;
  await sleep(1_500);
  await control("start");
  const [second, loaded] = await Promise.all(meanwhile);
  const tookMs = Date.now() - started;
  const { turns } = await far.memory.listTurns({ userId: "ts-restart" });
  far.close();
  console.log(`restart: answered ${tookMs} ms after the service had stopped, #${second.sequence}`);
  assert.deepEqual([first.sequence, second.sequence], [1n, 2n]);
  assert.match(loaded.rendered, /杭州/);
  assert.equal(turns.length, 2);
});

test("restart: a service that is not there from the start is reported at once", async () => {
  const nowhere = new NianlunClient({ targets: { memory: "127.0.0.1:1" } });
  const started = Date.now();
  const error = await nowhere.loadMemory("u", "?").catch((caught: unknown) => caught);
  nowhere.close();
  console.log(`restart: nobody there, reported after ${Date.now() - started} ms: ${error}`);
  assert.ok(error instanceof UnavailableError);
  assert.equal(error.reason, ErrorReason.UNSPECIFIED);
  assert.ok(Date.now() - started < 10_000);
});

test("tls: the authority that was named is trusted, no other", async () => {
  const rootCertificates = readFileSync(process.env["NIANLUN_TEST_CA"] ?? "");
  const targets = { memory: target("TLS") };
  const secure = new NianlunClient({ targets, tls: { rootCertificates } });
  const receipt = await secure.appendTurn("ts-tls", "s-1", "加密的。");
  secure.close();
  const errors: unknown[] = [];
  const wrong: ClientOptions[] = [{ tls: true }, {}];
  for (const options of wrong) {
    const other = new NianlunClient({ targets, ...options });
    errors.push(await other.loadMemory("ts-tls", "?").catch((caught: unknown) => caught));
    other.close();
  }
  console.log(`tls: turn #${receipt.sequence}; without the authority: ${errors.join("; ")}`);
  assert.equal(receipt.sequence, 1n);
  assert.ok(errors.every((error) => error instanceof UnavailableError));
});

test("export and import: streams in either direction", async () => {
  await client.appendTurn("ts-export", "s-1", "我喜欢爬山。", "记下了。");
  const lines: string[] = [];
  for await (const part of client.memory.exportUser({ userId: "ts-export" })) {
    lines.push(...part.lines);
  }
  const header = { requestId: newRequestId(), userId: "ts-import" };
  const imported = await client.memory.importUser([
    { payload: { case: "header", value: header } },
    { payload: { case: "lines", value: { lines } } },
  ]);
  const { turns } = await client.memory.listTurns({ userId: "ts-import" });
  console.log(`export: ${lines.length} lines; import: ${JSON.stringify(counts(imported.stored))}`);
  assert.equal(turns[0]?.messages[0]?.text, "我喜欢爬山。");
  assert.equal(turns[0]?.messages[0]?.role, memory.Role.USER);
  await assert.rejects(client.memory.importUser(brokenOff()), RangeError);
  const refused = client.memory.importUser([]);
  await assert.rejects(refused, (error) => error instanceof NianlunError);
});

test("erase: a user is forgotten", async () => {
  await client.appendTurn("ts-erase", "s-1", "请忘掉这句话。");
  await client.appendTurn("ts-erase", "s-2", "也请忘掉这句话。");
  await assert.rejects(client.eraseSession("ts-erase", ""), InvalidArgumentError);
  assert.notEqual((await client.eraseSession("ts-erase", "s-2")).memoryReceiptId, "");
  assert.equal((await client.memory.listTurns({ userId: "ts-erase" })).turns.length, 1);
  const receipt = await client.eraseUser("ts-erase");
  const { turns } = await client.memory.listTurns({ userId: "ts-erase" });
  console.log(`erase: receipt ${receipt.memoryReceiptId}, ${turns.length} turns left`);
  assert.notEqual(receipt.memoryReceiptId, "");
  assert.equal(turns.length, 0);
});

async function* brokenOff(): AsyncGenerator<{
  payload: { case: "header"; value: { requestId: string; userId: string } };
}> {
  yield { payload: { case: "header", value: { requestId: newRequestId(), userId: "ts-none" } } };
  throw new RangeError("the file ended");
}

function target(name: string): string {
  const found = process.env[`NIANLUN_TEST_${name}`];
  assert.ok(found, `NIANLUN_TEST_${name} is not set`);
  return found;
}

async function control(action: string): Promise<void> {
  const answer = await fetch(`${process.env["NIANLUN_TEST_CONTROL"]}/${action}`, {
    method: "POST",
  });
  assert.equal(answer.status, 204, action);
}

/** The states of a user's runs, once none goes on any more. */
async function runStates(userId: string): Promise<string[]> {
  for (let left = 100; ; left -= 1) {
    const { runs } = await client.orchestrator.listRuns({ userId });
    const states = runs.map((run) => orchestrator.RunState[run.state] ?? "");
    if (!states.includes("RUNNING") || left === 0) {
      return states;
    }
    await sleep(50);
  }
}

function counts(stored: Record<string, bigint>): Record<string, number> {
  return Object.fromEntries(Object.entries(stored).map(([kind, count]) => [kind, Number(count)]));
}
