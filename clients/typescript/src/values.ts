import { randomUUID } from "node:crypto";
import { create, isMessage, type MessageInitShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Value, ValueSchema } from "./gen/nianlun/common/v1/common_pb.js";

/**
 * What a metadata value may be. A bigint, and a number without a fraction, is stored as a 64-bit integer;
 * other numbers as a double; a Date as an instant. A `Value` is taken as it is.
 */
export type Plain = string | number | bigint | boolean | Date | readonly string[] | Value;

/** A fresh request id. Send the same one again to repeat a write without a second effect. */
export function newRequestId(): string {
  return randomUUID();
}

/**
 * A protobuf timestamp of an instant.
 *
 * @throws RangeError when the date is invalid.
 */
export function timestamp(moment: Date): Timestamp {
  if (Number.isNaN(moment.getTime())) {
    throw new RangeError("the date is invalid");
  }
  return timestampFromDate(moment);
}

/**
 * One metadata value of the right kind.
 *
 * @throws RangeError when a number is NaN, infinite, or an integer that a double cannot hold exactly.
 */
export function value(plain: Plain): Value {
  if (isMessage(plain, ValueSchema)) {
    return plain;
  }
  return create(ValueSchema, { kind: kindOf(plain) });
}

/** A metadata map, for documents and filters. */
export function metadata(plain: Readonly<Record<string, Plain>>): Record<string, Value> {
  return Object.fromEntries(Object.entries(plain).map(([key, item]) => [key, value(item)]));
}

type Kind = NonNullable<MessageInitShape<typeof ValueSchema>["kind"]>;

function kindOf(plain: Exclude<Plain, Value>): Kind {
  if (typeof plain === "string") {
    return { case: "stringValue", value: plain };
  }
  if (typeof plain === "boolean") {
    return { case: "boolValue", value: plain };
  }
  if (typeof plain === "bigint") {
    return { case: "intValue", value: plain };
  }
  if (typeof plain === "number") {
    return numberKind(plain);
  }
  if (plain instanceof Date) {
    return { case: "timestampValue", value: timestamp(plain) };
  }
  return { case: "stringList", value: { values: [...plain] } };
}

function numberKind(plain: number): Kind {
  if (!Number.isFinite(plain)) {
    throw new RangeError(`${plain} cannot be a metadata value`);
  }
  if (!Number.isInteger(plain)) {
    return { case: "doubleValue", value: plain };
  }
  if (!Number.isSafeInteger(plain)) {
    throw new RangeError(`${plain} is not exact as a number: pass a bigint`);
  }
  return { case: "intValue", value: BigInt(plain) };
}
