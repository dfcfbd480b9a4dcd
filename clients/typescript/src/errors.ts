import { fromBinary } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { AnySchema, DurationSchema } from "@bufbuild/protobuf/wkt";
import { type Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { ErrorReason, type ItemError, type Job } from "./gen/nianlun/common/v1/common_pb.js";

/** One field of a request that was refused, and why. */
export interface FieldViolation {
  readonly field: string;
  readonly description: string;
}

/** A thing that was not found, or exists already. */
export interface Resource {
  readonly type: string;
  readonly name: string;
}

/** What a service said about a failure, beside code and message. */
export interface ErrorDetails {
  /** The published reason; UNSPECIFIED when the failure did not come from Nianlun, or the reason is newer. */
  readonly reason: ErrorReason;
  /** The variable parts of the reason; see the comments of `ErrorReason`. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The refused fields of an INVALID_ARGUMENT. */
  readonly violations: readonly FieldViolation[];
  /** What was not found or exists already. */
  readonly resource: Resource | undefined;
  /** How long the service asks to wait before the next try, in milliseconds. */
  readonly retryAfterMs: number | undefined;
}

/** A call that failed. Decide by `reason` or `code`, never by the message. */
export class NianlunError extends Error implements ErrorDetails {
  override readonly name: string = "NianlunError";
  /** The gRPC status. */
  readonly code: status;
  readonly reason: ErrorReason;
  readonly metadata: Readonly<Record<string, string>>;
  readonly violations: readonly FieldViolation[];
  readonly resource: Resource | undefined;
  readonly retryAfterMs: number | undefined;
  /** What to quote in a report, and to send again where a write is repeated by hand. */
  readonly requestId: string;

  constructor(
    code: status,
    message: string,
    requestId = "",
    details: ErrorDetails = NO_DETAILS,
    cause?: unknown,
  ) {
    super(describe(code, message, requestId, details), { cause });
    this.code = code;
    this.requestId = requestId;
    this.reason = details.reason;
    this.metadata = details.metadata;
    this.violations = details.violations;
    this.resource = details.resource;
    this.retryAfterMs = details.retryAfterMs;
  }

  /**
   * Whether the same request, with the same request id, may succeed later. Decided by the reason; by the code where
   * the failure did not come from Nianlun, or its reason is newer than this client.
   */
  get retryable(): boolean {
    return this.reason === ErrorReason.UNSPECIFIED
      ? RETRYABLE_CODES.has(this.code)
      : RETRYABLE_REASONS.has(this.reason);
  }
}

/** The named thing does not exist, or belongs to someone else. */
export class NotFoundError extends NianlunError {
  override readonly name = "NotFoundError";
}

/** The request is wrong; `violations` names the fields. */
export class InvalidArgumentError extends NianlunError {
  override readonly name = "InvalidArgumentError";
}

/** No key, or one that is unknown, revoked or expired. */
export class UnauthenticatedError extends NianlunError {
  override readonly name = "UnauthenticatedError";
}

/** A service or its database cannot be reached now; try again after `retryAfterMs`. */
export class UnavailableError extends NianlunError {
  override readonly name = "UnavailableError";
}

/** The call took longer than it was allowed to. */
export class DeadlineExceededError extends NianlunError {
  override readonly name = "DeadlineExceededError";
}

/** The caller ended the call; `cause` is the reason of the AbortSignal, where one was used. */
export class CancelledError extends NianlunError {
  override readonly name = "CancelledError";
}

/** A job ended without success, or not in time; `job` is its last known state. */
export class JobFailedError extends Error {
  override readonly name = "JobFailedError";

  constructor(
    readonly job: Job,
    message: string,
  ) {
    super(message);
  }
}

/** A chat ended without an answer; `error` says why, where the service could say. */
export class RunFailedError extends Error {
  override readonly name = "RunFailedError";

  constructor(
    readonly runId: string,
    readonly error: ItemError | undefined,
  ) {
    super(`run ${runId} ended without an answer: ${error?.message || "no reason was given"}`);
  }
}

/** The reasons that the contract calls retryable. */
const RETRYABLE_REASONS: ReadonlySet<ErrorReason> = new Set([
  ErrorReason.FRESHNESS_NOT_MET,
  ErrorReason.OVERLOADED,
  ErrorReason.DATABASE_UNAVAILABLE,
  ErrorReason.DEPENDENCY_UNAVAILABLE,
  ErrorReason.MODEL_UNAVAILABLE,
  ErrorReason.DEADLINE_EXCEEDED,
]);

// Where no reason is given, gRPC or something on the way has failed the call. Not in this list:
// RESOURCE_EXHAUSTED, which is then an answer that is too large.
const RETRYABLE_CODES: ReadonlySet<status> = new Set([
  status.UNAVAILABLE,
  status.DEADLINE_EXCEEDED,
]);

const NO_DETAILS: ErrorDetails = {
  reason: ErrorReason.UNSPECIFIED,
  metadata: {},
  violations: [],
  resource: undefined,
  retryAfterMs: undefined,
};

/** The typed form of what grpc-js reports. `requestId` is the one that was sent. */
export function fromServiceError(
  error: ServiceError,
  requestId: string,
  signal?: AbortSignal,
): NianlunError {
  const cause = error.code === status.CANCELLED && signal?.aborted ? signal.reason : error;
  const kind = typeOf(error.code);
  const sent = single(error.metadata, "x-request-id");
  const told = typeof sent === "string" ? sent : requestId;
  return new kind(error.code, error.details, told, readable(error.metadata), cause);
}

function typeOf(code: status): typeof NianlunError {
  switch (code) {
    case status.NOT_FOUND:
      return NotFoundError;
    case status.INVALID_ARGUMENT:
      return InvalidArgumentError;
    case status.UNAUTHENTICATED:
      return UnauthenticatedError;
    case status.UNAVAILABLE:
      return UnavailableError;
    case status.DEADLINE_EXCEEDED:
      return DeadlineExceededError;
    case status.CANCELLED:
      return CancelledError;
    default:
      return NianlunError;
  }
}

function describe(code: status, message: string, requestId: string, details: ErrorDetails): string {
  const parts = [`${status[code] ?? code}: ${message.replace(/\.$/, "")}`];
  if (details.resource !== undefined) {
    parts.push(`${details.resource.type} ${details.resource.name}`);
  }
  parts.push(...details.violations.map((item) => `${item.field}: ${item.description}`));
  if (requestId !== "") {
    parts.push(`request id ${requestId}`);
  }
  return parts.join("; ");
}

function single(from: Metadata | undefined, key: string): string | Buffer | undefined {
  return from?.get(key)[0];
}

/** Details that something on the way has mangled must not hide the failure: code and message remain. */
function readable(trailers: Metadata | undefined): ErrorDetails {
  try {
    return detailsOf(trailers);
  } catch (unreadable) {
    const note = { "unreadable-details": String(unreadable) };
    return { ...NO_DETAILS, metadata: note };
  }
}

/** Reads google.rpc.Status with ErrorInfo, BadRequest, RetryInfo and ResourceInfo out of the trailers. */
export function detailsOf(trailers: Metadata | undefined): ErrorDetails {
  const packed = single(trailers, "grpc-status-details-bin");
  if (!(packed instanceof Uint8Array)) {
    return NO_DETAILS;
  }
  // The messages are read by field number, so that the package needs no copy of their definitions.
  let found = NO_DETAILS;
  for (const detail of fields(packed, STATUS_DETAILS)) {
    const { typeUrl, value } = fromBinary(AnySchema, detail);
    found = { ...found, ...readDetail(typeUrl.slice(typeUrl.lastIndexOf("/") + 1), value) };
  }
  return found;
}

const STATUS_DETAILS = 3;

function readDetail(typeName: string, value: Uint8Array): Partial<ErrorDetails> {
  switch (typeName) {
    case "google.rpc.ErrorInfo":
      return {
        reason: reasonOf(text(value, 1)),
        metadata: Object.fromEntries(
          fields(value, 3).map((entry) => [text(entry, 1), text(entry, 2)]),
        ),
      };
    case "google.rpc.BadRequest":
      return {
        violations: fields(value, 1).map((item) => ({
          field: text(item, 1),
          description: text(item, 2),
        })),
      };
    case "google.rpc.RetryInfo": {
      const [packed] = fields(value, 1);
      const delay = fromBinary(DurationSchema, packed ?? new Uint8Array());
      return { retryAfterMs: Number(delay.seconds) * 1000 + delay.nanos / 1e6 };
    }
    case "google.rpc.ResourceInfo":
      return { resource: { type: text(value, 1), name: text(value, 2) } };
    default:
      return {};
  }
}

function reasonOf(name: string): ErrorReason {
  const short = name.replace(/^ERROR_REASON_/, "");
  const number: unknown = Object.hasOwn(ErrorReason, short)
    ? ErrorReason[short as keyof typeof ErrorReason]
    : ErrorReason.UNSPECIFIED;
  return typeof number === "number" ? number : ErrorReason.UNSPECIFIED;
}

function text(message: Uint8Array, wanted: number): string {
  const [found] = fields(message, wanted);
  return found === undefined ? "" : new TextDecoder().decode(found);
}

/** All length-delimited fields of one number. */
function fields(message: Uint8Array, wanted: number): Uint8Array[] {
  const reader = new BinaryReader(message);
  const found: Uint8Array[] = [];
  while (reader.pos < reader.len) {
    const [number, wireType] = reader.tag();
    if (number === wanted && wireType === WireType.LengthDelimited) {
      found.push(reader.bytes());
    } else {
      reader.skip(wireType, number);
    }
  }
  return found;
}
