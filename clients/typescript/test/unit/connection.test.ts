import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { connectionOf, localOptions } from "../../src/connection.js";
import { MemoryService } from "../../src/gen/nianlun/memory/v1/memory_pb.js";
import { serviceConfig, targetUri } from "../../src/transport.js";

test("what is given goes before the environment, and that before the default", () => {
  const environment = {
    NIANLUN_KEY: "nl_environment",
    NIANLUN_MEMORY_TARGET: "memory:1",
    NIANLUN_RETRIEVER_TARGET: "retriever:1",
  };
  const found = connectionOf({ targets: { memory: "given:2" } }, environment);
  assert.equal(found.key, "nl_environment");
  assert.deepEqual(found.targets, {
    embedder: "127.0.0.1:50051",
    retriever: "retriever:1",
    memory: "given:2",
    orchestrator: "127.0.0.1:50054",
  });
  assert.equal(found.tls, undefined);
  assert.deepEqual([found.timeoutMs, found.streamTimeoutMs], [30_000, 180_000]);
});

test("one address serves all, and TLS without options trusts the system", () => {
  const found = connectionOf({ targets: "proxy:443", tls: true, key: "nl_x" }, {});
  assert.deepEqual(new Set(Object.values(found.targets)), new Set(["proxy:443"]));
  assert.deepEqual(found.tls, {});
});

test("options that cannot work are refused at once", () => {
  assert.throws(() => connectionOf({ timeoutMs: 0 }, {}), /timeoutMs/);
  assert.throws(() => connectionOf({ streamTimeoutMs: Number.NaN }, {}), /streamTimeoutMs/);
  assert.throws(() => connectionOf({ targets: { memory: "" } }, {}), /memory is empty/);
});

test("the local stack is read from its folder", () => {
  const home = mkdtempSync(join(tmpdir(), "nianlun-"));
  assert.throws(() => localOptions(home), /no local stack runs in .*make serve/);
  const targets = { embedder: "a:1", retriever: "a:2", memory: "a:3", orchestrator: "a:4" };
  writeFileSync(join(home, "stack.json"), JSON.stringify({ key: "nl_local", targets, pid: 1 }));
  assert.deepEqual(localOptions(home), { key: "nl_local", targets });
});

test("retries follow from the contract", () => {
  const config = JSON.parse(serviceConfig(MemoryService));
  const [{ name, retryPolicy }] = config.methodConfig;
  assert.deepEqual(retryPolicy.retryableStatusCodes, ["UNAVAILABLE"]);
  const methods = new Set(name.map((item: { method: string }) => item.method));
  assert.ok(methods.has("AppendTurn") && methods.has("LoadMemory"));
  assert.deepEqual(config.loadBalancingConfig, [{ round_robin: {} }]);
  assert.equal(retryPolicy.timeout, undefined);
});

test("only a bare address becomes a DNS name", () => {
  assert.equal(targetUri("memory.example:50053"), "dns:///memory.example:50053");
  for (const full of ["dns:///m:1", "unix:/run/m.sock", "ipv4:10.0.0.1:1,10.0.0.2:1"]) {
    assert.equal(targetUri(full), full);
  }
});
