import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { create, type DescMethod, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import {
  Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
  status,
} from "@grpc/grpc-js";
import {
  CancelledError,
  type common,
  DeadlineExceededError,
  ErrorReason,
  memory,
  NianlunClient,
  NianlunError,
  NotFoundError,
  UnavailableError,
} from "../../src/index.js";

type Call = ServerUnaryCall<memory.AppendTurnRequest, memory.AppendTurnResponse>;
type Reply = sendUnaryData<memory.AppendTurnResponse>;

// A memory service of which each test says what it does.
let append: (call: Call, reply: Reply) => void;
let watch: (call: ServerWritableStream<memory.WatchJobRequest, memory.WatchJobResponse>) => void;
let server: Server;
let client: NianlunClient;

function definition(name: "appendTurn" | "watchJob") {
  const method: DescMethod = memory.MemoryService.method[name];
  return {
    path: `/nianlun.memory.v1.MemoryService/${method.name}`,
    requestStream: false,
    responseStream: name === "watchJob",
    requestSerialize: (): Buffer => Buffer.alloc(0),
    requestDeserialize: (bytes: Buffer) => fromBinary(method.input, bytes),
    responseSerialize: (message: Message) => Buffer.from(toBinary(method.output, message)),
    responseDeserialize: (bytes: Buffer) => fromBinary(method.output, bytes),
  };
}

before(async () => {
  server = new Server();
  server.addService(
    { appendTurn: definition("appendTurn"), watchJob: definition("watchJob") },
    {
      appendTurn: (call: Call, reply: Reply) => append(call, reply),
      watchJob: (call: ServerWritableStream<memory.WatchJobRequest, memory.WatchJobResponse>) =>
        watch(call),
    },
  );
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    );
  });
  client = new NianlunClient({ key: "nl_k", targets: { memory: `127.0.0.1:${port}` } });
});

after(() => {
  client.close();
  server.forceShutdown();
});

beforeEach(() => {
  append = (_call, reply) => reply(null, create(memory.AppendTurnResponseSchema));
  watch = (call) => call.end();
});

test("every call carries the key, a deadline and the request id of its request", async () => {
  const seen: Call[] = [];
  append = (call, reply) => {
    seen.push(call);
    reply(null, create(memory.AppendTurnResponseSchema, { turnId: "t" }));
  };
  const started = Date.now();
  const receipt = await client.appendTurn("u", "s", "你好");
  await client.appendTurn("u", "s", "你好", "", { requestId: "mine", metadata: { "x-more": "1" } });
  assert.equal(receipt.turnId, "t");
  const [first, second] = seen;
  assert.ok(first !== undefined && second !== undefined);
  assert.match(first.request.requestId, /^[0-9a-f-]{36}$/);
  assert.deepEqual(first.metadata.get("x-request-id"), [first.request.requestId]);
  assert.deepEqual(first.metadata.get("authorization"), ["Bearer nl_k"]);
  const left = Number(first.getDeadline()) - started;
  assert.ok(left > 25_000 && left < 31_000, `${left} ms`);
  assert.equal(second.request.requestId, "mine");
  assert.deepEqual(second.metadata.get("x-more"), ["1"]);
});

test("a message of the caller is not changed by the request id that it is given", async () => {
  const request = create(memory.AppendTurnRequestSchema, { userId: "u" });
  await client.memory.appendTurn(request);
  assert.equal(request.requestId, "");
});

test("a write that meets an unavailable service is sent again with the same id", async () => {
  const ids: string[] = [];
  append = (call, reply) => {
    ids.push(call.request.requestId);
    if (ids.length < 3) {
      reply({ code: status.UNAVAILABLE, details: "restarting" });
    } else {
      reply(null, create(memory.AppendTurnResponseSchema, { turnId: "t" }));
    }
  };
  assert.equal((await client.appendTurn("u", "s", "x")).turnId, "t");
  assert.equal(ids.length, 3);
  assert.equal(new Set(ids).size, 1);
});

test("retries end after four tries, and no other status is tried again", async () => {
  let tries = 0;
  let code = status.UNAVAILABLE;
  append = (_call, reply) => {
    tries += 1;
    reply({ code, details: "no" });
  };
  await assert.rejects(client.appendTurn("u", "s", "x"), UnavailableError);
  assert.equal(tries, 4);
  tries = 0;
  code = status.INTERNAL;
  await assert.rejects(client.appendTurn("u", "s", "x"), { code: status.INTERNAL });
  assert.equal(tries, 1);
});

test("an error brings reason, metadata, resource, fields and the time to wait", async () => {
  append = (_call, reply) => {
    const trailers = new Metadata();
    trailers.set("grpc-status-details-bin", Buffer.from(packedStatus()));
    trailers.set("x-request-id", "r-1");
    reply({ code: status.NOT_FOUND, details: "There is no such session.", metadata: trailers });
  };
  const error = await client.appendTurn("u", "s", "x").catch((caught: unknown) => caught);
  assert.ok(error instanceof NotFoundError && error instanceof NianlunError);
  assert.equal(error.reason, ErrorReason.NOT_FOUND);
  assert.deepEqual(error.metadata, { kind: "会话" });
  assert.deepEqual(error.resource, { type: "session", name: "s" });
  assert.deepEqual(error.violations, [{ field: "session_id", description: "unknown" }]);
  assert.equal(error.retryAfterMs, 1500);
  assert.equal(error.requestId, "r-1");
  assert.equal(error.retryable, false);
  assert.equal(
    error.message,
    "NOT_FOUND: There is no such session; session s; session_id: unknown; request id r-1",
  );
});

test("whether a call may succeed later is a matter of its reason", () => {
  const retryable = (code: status, reason: ErrorReason) =>
    new NianlunError(code, "", "", {
      reason,
      metadata: {},
      violations: [],
      resource: undefined,
      retryAfterMs: undefined,
    }).retryable;
  assert.equal(retryable(status.RESOURCE_EXHAUSTED, ErrorReason.OVERLOADED), true);
  assert.equal(retryable(status.RESOURCE_EXHAUSTED, ErrorReason.MESSAGE_TOO_LARGE), false);
  assert.equal(retryable(status.RESOURCE_EXHAUSTED, ErrorReason.BUDGET_EXHAUSTED), false);
  assert.equal(retryable(status.ABORTED, ErrorReason.ETAG_MISMATCH), false);
  assert.equal(retryable(status.FAILED_PRECONDITION, ErrorReason.FRESHNESS_NOT_MET), true);
  assert.equal(retryable(status.FAILED_PRECONDITION, ErrorReason.FAILED_PRECONDITION), false);
  // Nothing of ours: a lost connection, a deadline of the client, an answer too large for it.
  assert.equal(retryable(status.UNAVAILABLE, ErrorReason.UNSPECIFIED), true);
  assert.equal(retryable(status.DEADLINE_EXCEEDED, ErrorReason.UNSPECIFIED), true);
  assert.equal(retryable(status.RESOURCE_EXHAUSTED, ErrorReason.UNSPECIFIED), false);
});

test("details that cannot be read do not hide the failure", async () => {
  append = (_call, reply) => {
    const trailers = new Metadata();
    trailers.set("grpc-status-details-bin", Buffer.from([0x1a, 0xff, 0xff]));
    reply({ code: status.INTERNAL, details: "a fault", metadata: trailers });
  };
  const error = await client.appendTurn("u", "s", "x").catch((caught: unknown) => caught);
  assert.ok(error instanceof NianlunError);
  assert.equal(error.code, status.INTERNAL);
  assert.equal(error.reason, ErrorReason.UNSPECIFIED);
  assert.ok("unreadable-details" in error.metadata);
});

test("a deadline ends a call that is not answered", async () => {
  append = () => undefined;
  const started = Date.now();
  const call = client.appendTurn("u", "s", "x", "", { timeoutMs: 200 });
  await assert.rejects(call, DeadlineExceededError);
  assert.ok(Date.now() - started < 5_000);
});

test("a signal ends calls: before they begin, while they run, and streams", async () => {
  let cancelled = 0;
  let begun = (): void => undefined;
  append = (call) => {
    call.on("cancelled", () => {
      cancelled += 1;
    });
    begun();
  };
  const gone = AbortSignal.abort("left");
  const early = client.appendTurn("u", "s", "x", "", { signal: gone });
  await assert.rejects(early, (error) => error instanceof CancelledError && error.cause === "left");
  const control = new AbortController();
  const running = new Promise<void>((resolve) => {
    begun = resolve;
  });
  const call = client.appendTurn("u", "s", "x", "", { signal: control.signal });
  await running;
  control.abort("enough");
  await assert.rejects(
    call,
    (error) => error instanceof CancelledError && error.cause === "enough",
  );
  await eventually(() => cancelled === 1);
});

test("a call that is aborted in the moment it starts ends on the service, too", async () => {
  let begun = 0;
  let cancelled = 0;
  append = (call, reply) => {
    if (call.request.userId === "after") {
      reply(null, create(memory.AppendTurnResponseSchema));
      return;
    }
    begun += 1;
    call.on("cancelled", () => {
      cancelled += 1;
    });
  };
  const control = new AbortController();
  const call = client.appendTurn("u", "s", "x", "", { signal: control.signal });
  control.abort();
  await assert.rejects(call, CancelledError);
  await client.appendTurn("after", "s", "x"); // What was sent before this has arrived now.
  await eventually(() => cancelled === begun);
});

test("leaving a stream ends it on the service", async () => {
  let cancelled = false;
  let sent = 0;
  watch = (call) => {
    const timer = setInterval(() => {
      sent += 1;
      call.write(create(memory.WatchJobResponseSchema, { job: { done: BigInt(sent) } }));
    }, 5);
    call.on("cancelled", () => {
      cancelled = true;
      clearInterval(timer);
    });
  };
  const seen: bigint[] = [];
  for await (const { job } of client.memory.watchJob({ jobId: "j" })) {
    seen.push(job?.done ?? 0n);
    if (seen.length === 3) {
      break;
    }
  }
  assert.deepEqual(seen, [1n, 2n, 3n]);
  await eventually(() => cancelled);
});

test("a stream that fails reports a typed error after what it had brought", async () => {
  watch = (call) => {
    call.write(create(memory.WatchJobResponseSchema, { job: { done: 1n } }));
    call.emit("error", { code: status.INTERNAL, details: "a fault" });
  };
  const seen: common.Job[] = [];
  const read = async (): Promise<void> => {
    for await (const { job } of client.memory.watchJob({ jobId: "j" })) {
      if (job !== undefined) {
        seen.push(job);
      }
    }
  };
  await assert.rejects(read, (error) => error instanceof NianlunError);
  assert.equal(seen.length, 1);
});

async function eventually(holds: () => boolean): Promise<void> {
  for (let left = 200; !holds(); left -= 1) {
    assert.ok(left > 0, "it did not happen within two seconds");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

// google.rpc.Status with all four kinds of details, written by field number.
function packedStatus(): Uint8Array {
  const info = message([
    [1, "NOT_FOUND"],
    [2, "nianlun.io"],
    [
      3,
      message([
        [1, "kind"],
        [2, "会话"],
      ]),
    ],
  ]);
  const violation = message([
    [1, "session_id"],
    [2, "unknown"],
  ]);
  const delay = new BinaryWriter()
    .tag(1, WireType.Varint)
    .int64(1)
    .tag(2, WireType.Varint)
    .int32(500_000_000)
    .finish();
  const resource = message([
    [1, "session"],
    [2, "s"],
  ]);
  return message([
    [3, any("google.rpc.ErrorInfo", info)],
    [3, any("google.rpc.BadRequest", message([[1, violation]]))],
    [3, any("google.rpc.RetryInfo", message([[1, delay]]))],
    [3, any("google.rpc.ResourceInfo", resource)],
    [3, any("example.Unknown", message([[1, "?"]]))],
  ]);
}

function any(typeName: string, value: Uint8Array): Uint8Array {
  return message([
    [1, `type.googleapis.com/${typeName}`],
    [2, value],
  ]);
}

function message(fields: readonly [number, string | Uint8Array][]): Uint8Array {
  const writer = new BinaryWriter();
  for (const [number, value] of fields) {
    writer.tag(number, WireType.LengthDelimited);
    if (typeof value === "string") {
      writer.string(value);
    } else {
      writer.bytes(value);
    }
  }
  return writer.finish();
}
