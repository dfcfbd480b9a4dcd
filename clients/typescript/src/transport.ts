import type { DescService } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { type ChannelCredentials, type ChannelOptions, credentials } from "@grpc/grpc-js";
import type { TlsOptions } from "./connection.js";

const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;

// The second try comes soon, the last after about a second: what is meant is a connection that broke. A
// service that restarts is waited for, see `Channel` in calls.ts.
const RETRY_POLICY = {
  maxAttempts: 4,
  initialBackoff: "0.1s",
  maxBackoff: "2s",
  backoffMultiplier: 2.5,
  retryableStatusCodes: ["UNAVAILABLE"],
};

/** Whether the contract says that a method may be sent again. */
export function isRepeatable(method: DescService["methods"][number]): boolean {
  return method.idempotency !== MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN;
}

/**
 * The gRPC service config as JSON: round robin, and retries of the methods whose `idempotency_level` allows it,
 * only while the service is unavailable. It sets no timeout: deadlines are the caller's.
 */
export function serviceConfig(service: DescService): string {
  const name = service.methods
    .filter(isRepeatable)
    .map((method) => ({ service: service.typeName, method: method.name }));
  return JSON.stringify({
    loadBalancingConfig: [{ round_robin: {} }],
    methodConfig: name.length === 0 ? [] : [{ name, retryPolicy: RETRY_POLICY }],
  });
}

/** Options of a channel to one service. */
export function channelOptions(service: DescService): ChannelOptions {
  return {
    "grpc.service_config": serviceConfig(service),
    "grpc.enable_retries": 1,
    // Retries come from the contract, not from what a name server says.
    "grpc.service_config_disable_resolution": 1,
    // A little more than a server sends: its limit is on the message, ours on the frame.
    "grpc.max_receive_message_length": MAX_MESSAGE_BYTES + 64 * 1024,
    "grpc.max_send_message_length": -1,
    "grpc.keepalive_time_ms": 30_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.keepalive_permit_without_calls": 1,
    // Reconnect soon after a restart; the default backs off up to two minutes.
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 2_000,
  };
}

/** TLS credentials, or those of plain text. */
export function credentialsOf(tls: TlsOptions | undefined): ChannelCredentials {
  return tls === undefined
    ? credentials.createInsecure()
    : credentials.createSsl(tls.rootCertificates ?? null);
}

/** `host:port` as a name that is resolved to all of its addresses, for round robin. */
export function targetUri(target: string): string {
  const hasScheme = target.includes("://") || /^(unix|dns|ipv4|ipv6):/.test(target);
  return hasScheme ? target : `dns:///${target}`;
}
