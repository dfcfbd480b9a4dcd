import { once } from "node:events";
import {
  clone,
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodClientStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type DescService,
  fromBinary,
  type Message,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import {
  type Call,
  Client,
  type ClientWritableStream,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import type { Connection, ServiceName } from "./connection.js";
import { CancelledError, fromServiceError } from "./errors.js";
import { channelOptions, credentialsOf, isRepeatable, targetUri } from "./transport.js";
import { newRequestId } from "./values.js";

/** What one call may set. */
export interface CallOptions {
  /** Deadline in milliseconds, in place of the client's. */
  readonly timeoutMs?: number;
  /** Aborting it cancels the call, on the service too; the call fails with `CancelledError`. */
  readonly signal?: AbortSignal;
  /** Further metadata; ASCII. */
  readonly metadata?: Readonly<Record<string, string>>;
}

type Init<M extends DescMessage> = MessageInitShape<M>;

/** A generated service as an object of methods; its comments are those of the contract. */
export type ServiceClient<S extends DescService> = {
  readonly [K in keyof S["method"]]: S["method"][K] extends DescMethodUnary<infer I, infer O>
    ? (request: Init<I>, options?: CallOptions) => Promise<MessageShape<O>>
    : S["method"][K] extends DescMethodServerStreaming<infer I, infer O>
      ? (
          request: Init<I>,
          options?: CallOptions,
        ) => AsyncGenerator<MessageShape<O>, void, undefined>
      : S["method"][K] extends DescMethodClientStreaming<infer I, infer O>
        ? (requests: Stream<Init<I>>, options?: CallOptions) => Promise<MessageShape<O>>
        : never;
};

type Stream<T> = AsyncIterable<T> | Iterable<T>;

/** One call that is about to start. */
interface Prepared {
  readonly metadata: Metadata;
  readonly requestId: string;
  readonly deadline: { deadline: Date };
  readonly signal: AbortSignal | undefined;
}

/** The channel to one service, and the calls over it. */
export class Channel {
  readonly #client: Client;
  readonly #connection: Connection;
  #reached = false;

  constructor(connection: Connection, name: ServiceName, service: DescService) {
    this.#connection = connection;
    this.#client = new Client(
      targetUri(connection.targets[name]),
      credentialsOf(connection.tls),
      channelOptions(service),
    );
  }

  /** Ends the connection; calls under way fail. */
  close(): void {
    this.#client.close();
  }

  /** All methods of a service. */
  methods<S extends DescService>(service: S): ServiceClient<S> {
    // What the type says of each method is what `bind` makes of its descriptor.
    return Object.fromEntries(
      service.methods.map((method) => [method.localName, this.#bind(method)]),
    ) as ServiceClient<S>;
  }

  #bind(method: DescMethod): unknown {
    switch (method.methodKind) {
      case "unary":
        return (request: Init<DescMessage>, options: CallOptions = {}) =>
          this.#unary(method, request, options);
      case "server_streaming":
        return (request: Init<DescMessage>, options: CallOptions = {}) =>
          this.#serverStream(method, request, options);
      case "client_streaming":
        return (requests: Stream<Init<DescMessage>>, options: CallOptions = {}) =>
          this.#clientStream(method, requests, options);
      case "bidi_streaming":
        throw new TypeError(
          `${method.name}: streams in both directions are not part of the contract`,
        );
    }
  }

  async #unary(
    method: DescMethod,
    init: Init<DescMessage>,
    options: CallOptions,
  ): Promise<Message> {
    const [request, requestId] = identified(method.input, init);
    const call = this.#prepare(method, requestId, options, this.#connection.timeoutMs);
    let stop = (): void => undefined;
    try {
      return await new Promise<Message>((resolve, reject) => {
        const running = this.#client.makeUnaryRequest(
          path(method),
          encoder(method.input),
          decoder(method.output),
          request,
          call.metadata,
          call.deadline,
          settle(resolve, reject, call),
        );
        running.on("metadata", () => this.#seen());
        stop = onAbort(call.signal, () => cancel(running));
      });
    } finally {
      stop();
    }
  }

  async *#serverStream(
    method: DescMethod,
    init: Init<DescMessage>,
    options: CallOptions,
  ): AsyncGenerator<Message, void, undefined> {
    const [request, requestId] = identified(method.input, init);
    const call = this.#prepare(method, requestId, options, this.#connection.streamTimeoutMs);
    const running = this.#client.makeServerStreamRequest(
      path(method),
      encoder(method.input),
      decoder(method.output),
      request,
      call.metadata,
      call.deadline,
    );
    running.on("metadata", () => this.#seen());
    // Iterating reports the error; this keeps a late one, after a `break`, from ending the process.
    running.on("error", () => undefined);
    const stop = onAbort(call.signal, () => cancel(running));
    try {
      for await (const message of running) {
        yield message as Message;
      }
    } catch (error) {
      throw isServiceError(error) ? fromServiceError(error, call.requestId, call.signal) : error;
    } finally {
      stop();
      running.cancel(); // Leaving a loop early must end the work of the service, too.
    }
  }

  async #clientStream(
    method: DescMethod,
    requests: Stream<Init<DescMessage>>,
    options: CallOptions,
  ): Promise<Message> {
    const call = this.#prepare(method, newRequestId(), options, this.#connection.streamTimeoutMs);
    const ended = new AbortController();
    let running!: ClientWritableStream<Message>;
    const answer = new Promise<Message>((resolve, reject) => {
      running = this.#client.makeClientStreamRequest(
        path(method),
        encoder(method.input),
        decoder(method.output),
        call.metadata,
        call.deadline,
        settle(resolve, reject, call),
      );
    }).finally(() => ended.abort());
    answer.catch(() => undefined); // It is awaited below, maybe after it has failed.
    running.on("metadata", () => this.#seen());
    running.on("error", () => undefined);
    const stop = onAbort(call.signal, () => cancel(running));
    try {
      for await (const init of requests) {
        if (ended.signal.aborted) {
          break; // The service has answered, or refused, before it was told everything.
        }
        if (!running.write(create(method.input, init))) {
          await Promise.race([once(running, "drain"), once(ended.signal, "abort")]);
        }
      }
      running.end();
    } catch (error) {
      cancel(running); // The source of the requests failed: that is the news, not the cancelled call.
      throw error;
    } finally {
      answer.finally(stop).catch(() => undefined);
    }
    return await answer;
  }

  #prepare(
    method: DescMethod,
    requestId: string,
    options: CallOptions,
    timeoutMs: number,
  ): Prepared {
    const { signal } = options;
    if (signal?.aborted) {
      const message = "the call was aborted before it began";
      throw new CancelledError(status.CANCELLED, message, requestId, undefined, signal.reason);
    }
    // A service that was there before is waited for, until the deadline, by calls that may be repeated: it
    // restarts. One that was never reached fails at once: its address is wrong, or it is down.
    const metadata = new Metadata({ waitForReady: this.#reached && isRepeatable(method) });
    for (const [key, value] of Object.entries(options.metadata ?? {})) {
      metadata.set(key, value);
    }
    if (/^[\x20-\x7e]+$/.test(requestId)) {
      metadata.set("x-request-id", requestId);
    }
    if (this.#connection.key !== "") {
      metadata.set("authorization", `Bearer ${this.#connection.key}`);
    }
    const deadline = new Date(Date.now() + (options.timeoutMs ?? timeoutMs));
    return { metadata, requestId, deadline: { deadline }, signal };
  }

  #seen(): void {
    this.#reached = true;
  }
}

/** The request as a message, with a request id where its type has one and none was given. */
function identified(schema: DescMessage, init: Init<DescMessage>): [Message, string] {
  let message = create(schema, init);
  const field = schema.field["requestId"];
  if (field === undefined) {
    return [message, newRequestId()];
  }
  const given = reflect(schema, message).get(field);
  if (typeof given === "string" && given !== "") {
    return [message, given];
  }
  if (message === init) {
    message = clone(schema, message); // The caller's own message stays as it is.
  }
  const requestId = newRequestId();
  reflect(schema, message).set(field, requestId);
  return [message, requestId];
}

function settle(
  resolve: (response: Message) => void,
  reject: (error: Error) => void,
  call: Prepared,
): (error: ServiceError | null, response?: Message) => void {
  return (error, response) => {
    if (error !== null) {
      reject(fromServiceError(error, call.requestId, call.signal));
    } else if (response !== undefined) {
      resolve(response);
    }
  };
}

function path(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function encoder(schema: DescMessage): (message: Message) => Buffer {
  return (message) => {
    const bytes = toBinary(schema, message);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  };
}

function decoder(schema: DescMessage): (bytes: Buffer) => Message {
  return (bytes) => fromBinary(schema, bytes);
}

function onAbort(signal: AbortSignal | undefined, cancel: () => void): () => void {
  signal?.addEventListener("abort", cancel, { once: true });
  return () => signal?.removeEventListener("abort", cancel);
}

/**
 * Cancels a call that may have been started in this very moment. grpc-js forgets a cancellation that comes before
 * its own first promises are settled: the call would go on, without anybody to end it.
 */
function cancel(call: Call): void {
  setImmediate(() => call.cancel());
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error && "metadata" in error;
}
