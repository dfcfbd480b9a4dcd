import type { MessageInitShape } from "@bufbuild/protobuf";
import { type CallOptions, Channel, type ServiceClient } from "./calls.js";
import { ChatStream } from "./chat.js";
import { type ClientOptions, type Connection, connectionOf, localOptions } from "./connection.js";
import type { Job } from "./gen/nianlun/common/v1/common_pb.js";
import { EmbedderService } from "./gen/nianlun/embedder/v1/embedder_pb.js";
import {
  type AppendTurnResponse,
  type EndSessionResponse,
  type LoadMemoryRequestSchema,
  type LoadMemoryResponse,
  MemoryService,
  Role,
} from "./gen/nianlun/memory/v1/memory_pb.js";
import {
  type ChatInputSchema,
  type ChatResponse,
  type EraseSessionResponse,
  type EraseUserResponse,
  OrchestratorService,
} from "./gen/nianlun/orchestrator/v1/orchestrator_pb.js";
import {
  type DocumentInputSchema,
  RetrieverService,
  type SearchRequestSchema,
  type SearchResponse,
  type UpsertDocumentsResponse,
} from "./gen/nianlun/retriever/v1/retriever_pb.js";
import { type JobAnswer, type Look, type WaitOptions, waitFor } from "./jobs.js";

/** Call options of a write. */
export interface WriteOptions extends CallOptions {
  /** Send the one of a failed write again, and it takes effect once; a new one by default. */
  readonly requestId?: string;
}

/** What the user says, and what the answer may draw on. */
export type ChatInit = MessageInitShape<typeof ChatInputSchema>;
/** A document for `upsertDocuments`. */
export type DocumentInit = MessageInitShape<typeof DocumentInputSchema>;
/** What to load beside user and question. */
export type LoadMemoryInit = Omit<MessageInitShape<typeof LoadMemoryRequestSchema>, "$typeName">;
/** What a search may set beside its question and collection. */
export type SearchInit = Omit<MessageInitShape<typeof SearchRequestSchema>, "$typeName">;

/**
 * Calls the four services. Make one and share it; close it at the end.
 *
 * The methods here cover the common path. `memory`, `retriever`, `orchestrator` and `embedder` have every
 * method of the contract. All of them fail with a `NianlunError`.
 */
export class NianlunClient implements Disposable {
  readonly embedder: ServiceClient<typeof EmbedderService>;
  readonly retriever: ServiceClient<typeof RetrieverService>;
  readonly memory: ServiceClient<typeof MemoryService>;
  readonly orchestrator: ServiceClient<typeof OrchestratorService>;
  readonly #channels: readonly Channel[];
  readonly #streamTimeoutMs: number;

  constructor(options: ClientOptions = {}) {
    const connection: Connection = connectionOf(options);
    const embedder = new Channel(connection, "embedder", EmbedderService);
    const retriever = new Channel(connection, "retriever", RetrieverService);
    const memory = new Channel(connection, "memory", MemoryService);
    const orchestrator = new Channel(connection, "orchestrator", OrchestratorService);
    this.#streamTimeoutMs = connection.streamTimeoutMs;
    this.#channels = [embedder, retriever, memory, orchestrator];
    this.embedder = embedder.methods(EmbedderService);
    this.retriever = retriever.methods(RetrieverService);
    this.memory = memory.methods(MemoryService);
    this.orchestrator = orchestrator.methods(OrchestratorService);
  }

  /**
   * A client of the stack that `make serve` started; its folder is `.nianlun` or NIANLUN_HOME.
   *
   * @throws Error when no stack is running there.
   */
  static local(home?: string, options: Omit<ClientOptions, "key" | "targets"> = {}): NianlunClient {
    return new NianlunClient({ ...options, ...localOptions(home) });
  }

  /** Closes the connections; calls under way fail. */
  close(): void {
    for (const channel of this.#channels) {
      channel.close();
    }
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Stores one exchange. Visible to `loadMemory` when this resolves. */
  appendTurn(
    userId: string,
    sessionId: string,
    userText: string,
    assistantText = "",
    options: WriteOptions = {},
  ): Promise<AppendTurnResponse> {
    const messages = [{ role: Role.USER, text: userText }];
    if (assistantText !== "") {
      messages.push({ role: Role.ASSISTANT, text: assistantText });
    }
    return this.memory.appendTurn({ userId, sessionId, messages, ...identity(options) }, options);
  }

  /**
   * Loads what is known about the user for a question. `more.atLeast`, the position of a receipt, makes sure
   * that the answer is at least that new.
   */
  loadMemory(
    userId: string,
    query: string,
    more: LoadMemoryInit = {},
    options: CallOptions = {},
  ): Promise<LoadMemoryResponse> {
    return this.memory.loadMemory({ ...more, userId, query }, options);
  }

  /** Ends a session: it is digested and summarised in the background; `waitForJob` waits for that. */
  endSession(
    userId: string,
    sessionId: string,
    options: WriteOptions = {},
  ): Promise<EndSessionResponse> {
    return this.memory.endSession({ userId, sessionId, ...identity(options) }, options);
  }

  /** Stores or replaces documents; the answer carries the job that chunks and embeds them. */
  upsertDocuments(
    collectionId: string,
    documents: DocumentInit[],
    options: WriteOptions = {},
  ): Promise<UpsertDocumentsResponse> {
    return this.retriever.upsertDocuments(
      { collectionId, documents, ...identity(options) },
      options,
    );
  }

  /** Searches one collection, or the scopes in `more`. */
  search(
    query: string,
    collectionId: string,
    more: SearchInit = {},
    options: CallOptions = {},
  ): Promise<SearchResponse> {
    return this.retriever.search({ scopes: [{ collectionId }], ...more, query }, options);
  }

  /** Answers a message as one whole; the turn is remembered. Its deadline is that of streams. */
  chat(input: ChatInit, options: WriteOptions = {}): Promise<ChatResponse> {
    const timeoutMs = this.#streamTimeoutMs;
    const request = { input, ...identity(options) };
    return this.orchestrator.chat(request, { timeoutMs, ...options });
  }

  /** Answers a message as events; iterate over what this gives. */
  streamChat(input: ChatInit, options: WriteOptions = {}): ChatStream {
    return new ChatStream(this.orchestrator.streamChat({ input, ...identity(options) }, options));
  }

  /** Forgets a user: turns, facts, notes, summaries, vectors, runs, queued work. */
  eraseUser(userId: string, options: WriteOptions = {}): Promise<EraseUserResponse> {
    return this.orchestrator.eraseUser({ userId, ...identity(options) }, options);
  }

  /** Forgets one session of a user, and what was derived from it; one without a name is refused. */
  eraseSession(
    userId: string,
    sessionId: string,
    options: WriteOptions = {},
  ): Promise<EraseSessionResponse> {
    return this.orchestrator.eraseSession({ userId, sessionId, ...identity(options) }, options);
  }

  /**
   * Waits for the job in an answer.
   *
   * @throws JobFailedError when it failed, was cancelled, or has not ended in time (then it goes on).
   * @throws TypeError when the answer carries no job.
   */
  async waitForJob(answer: JobAnswer, options: WaitOptions = {}): Promise<Job> {
    if (answer.job === undefined || answer.job.jobId === "") {
      throw new TypeError(`${answer.$typeName} carries no job`);
    }
    return await waitFor(answer.job, this.#look(answer.$typeName), options);
  }

  #look(typeName: string): Look {
    if (typeName.startsWith("nianlun.retriever.v1.")) {
      return async (jobId, options) => (await this.retriever.getJob({ jobId }, options)).job;
    }
    if (typeName.startsWith("nianlun.memory.v1.")) {
      return async (jobId, options) => (await this.memory.getJob({ jobId }, options)).job;
    }
    throw new TypeError(`${typeName} comes from a service without jobs`);
  }
}

function identity(options: WriteOptions): { requestId?: string } {
  return options.requestId === undefined ? {} : { requestId: options.requestId };
}
