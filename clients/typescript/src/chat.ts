import { RunFailedError } from "./errors.js";
import {
  type ChatEvent,
  type ChatResponse,
  type Completed,
  RunState,
  type StreamChatResponse,
} from "./gen/nianlun/orchestrator/v1/orchestrator_pb.js";

/**
 * The events of one chat, in order; the last is `completed`. The call starts with the first event asked for,
 * and can be iterated once. Leaving the loop early cancels what is under way.
 */
export class ChatStream implements AsyncIterable<ChatEvent> {
  readonly #events: AsyncGenerator<StreamChatResponse, void, undefined>;
  #completed: Completed | undefined;
  #runId = "";

  /** @param events what `orchestrator.streamChat` of a client gives. */
  constructor(events: AsyncGenerator<StreamChatResponse, void, undefined>) {
    this.#events = events;
  }

  /** The whole answer, once `completed` has arrived; undefined before, and for a run without an answer. */
  get response(): ChatResponse | undefined {
    return this.#completed?.state === RunState.COMPLETED ? this.#completed.response : undefined;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ChatEvent, void, undefined> {
    for await (const { event } of this.#events) {
      if (event === undefined) {
        continue;
      }
      this.#runId = event.runId;
      if (event.event.case === "completed") {
        this.#completed = event.event.value;
      }
      yield event;
    }
  }

  /**
   * Reads what is left and gives the whole answer.
   *
   * @throws RunFailedError when the run ended without an answer.
   */
  async answer(): Promise<ChatResponse> {
    for await (const _event of this) {
      // The last event brings the answer.
    }
    const { response } = this;
    if (response === undefined) {
      throw new RunFailedError(this.#runId, this.#completed?.error);
    }
    return response;
  }
}
