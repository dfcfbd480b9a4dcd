import assert from "node:assert/strict";
import { test } from "node:test";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { metadata, newRequestId, timestamp, value } from "../../src/index.js";

test("metadata values keep their kinds", () => {
  const when = new Date("2026-05-04T03:02:01.123Z");
  const found = metadata({
    text: "年轮",
    count: 3,
    large: 9_007_199_254_740_993n,
    share: 0.5,
    flag: false,
    when,
    names: ["a", "b"],
    given: value(1),
  });
  const kinds = Object.fromEntries(
    Object.entries(found).map(([key, item]) => [key, item.kind.case]),
  );
  assert.deepEqual(kinds, {
    text: "stringValue",
    count: "intValue",
    large: "intValue",
    share: "doubleValue",
    flag: "boolValue",
    when: "timestampValue",
    names: "stringList",
    given: "intValue",
  });
  assert.equal(found["large"]?.kind.value, 9_007_199_254_740_993n);
  assert.equal(found["count"]?.kind.value, 3n);
});

test("numbers that would change on the way are refused", () => {
  assert.throws(() => value(Number.NaN), RangeError);
  assert.throws(() => value(Number.POSITIVE_INFINITY), RangeError);
  assert.throws(() => value(2 ** 53), /pass a bigint/);
  assert.throws(() => timestamp(new Date("no date")), RangeError);
});

test("an instant survives, also before 1970", () => {
  for (const text of ["2026-05-04T03:02:01.123Z", "1931-01-01T00:00:00.001Z"]) {
    assert.equal(timestampDate(timestamp(new Date(text))).toISOString(), text);
  }
});

test("request ids are unique", () => {
  const ids = new Set(Array.from({ length: 100 }, newRequestId));
  assert.equal(ids.size, 100);
});
