/** Client of the Nianlun memory and retrieval services. */
export type { CallOptions, ServiceClient } from "./calls.js";
export { ChatStream } from "./chat.js";
export {
  type ChatInit,
  type DocumentInit,
  type LoadMemoryInit,
  NianlunClient,
  type SearchInit,
  type WriteOptions,
} from "./client.js";
export type { ClientOptions, ServiceName, TlsOptions } from "./connection.js";
export {
  CancelledError,
  DeadlineExceededError,
  type ErrorDetails,
  type FieldViolation,
  InvalidArgumentError,
  JobFailedError,
  NianlunError,
  NotFoundError,
  type Resource,
  RunFailedError,
  UnauthenticatedError,
  UnavailableError,
} from "./errors.js";
export * as common from "./gen/nianlun/common/v1/common_pb.js";
export { DegradationKind, ErrorReason, JobState } from "./gen/nianlun/common/v1/common_pb.js";
export * as embedder from "./gen/nianlun/embedder/v1/embedder_pb.js";
export * as memory from "./gen/nianlun/memory/v1/memory_pb.js";
export * as orchestrator from "./gen/nianlun/orchestrator/v1/orchestrator_pb.js";
export * as retriever from "./gen/nianlun/retriever/v1/retriever_pb.js";
export type { JobAnswer, WaitOptions } from "./jobs.js";
export { metadata, newRequestId, type Plain, timestamp, value } from "./values.js";
