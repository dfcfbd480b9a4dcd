package io.nianlun.client;

import io.nianlun.orchestrator.v1.ChatEvent;
import io.nianlun.orchestrator.v1.ChatResponse;
import io.nianlun.orchestrator.v1.Completed;
import io.nianlun.orchestrator.v1.RunState;
import io.nianlun.orchestrator.v1.StreamChatResponse;
import java.util.Iterator;
import java.util.Optional;

/**
 * The events of one chat, in order; the last is {@code completed}. Closing it early cancels the run. For one thread at
 * a time.
 */
public final class ChatStream implements Iterator<ChatEvent>, AutoCloseable {
  private final MessageStream<StreamChatResponse> messages;
  private ChatEvent last = ChatEvent.getDefaultInstance();

  ChatStream(MessageStream<StreamChatResponse> messages) {
    this.messages = messages;
  }

  /**
   * Waits for the next event.
   *
   * @return false after the last one
   * @throws NianlunException when the call failed
   */
  @Override
  public boolean hasNext() {
    return messages.hasNext();
  }

  @Override
  public ChatEvent next() {
    last = messages.next().getEvent();
    return last;
  }

  /** The whole answer, once {@code completed} was read; empty before, and for a run without an answer. */
  public Optional<ChatResponse> response() {
    Completed completed = last.getCompleted();
    return completed.getState() == RunState.RUN_STATE_COMPLETED
        ? Optional.of(completed.getResponse())
        : Optional.empty();
  }

  /**
   * Reads what is left and gives the whole answer.
   *
   * @throws NianlunException when the call failed
   * @throws RunFailedException when the run ended without an answer
   */
  public ChatResponse answer() {
    while (hasNext()) {
      next();
    }
    return response()
        .orElseThrow(() -> new RunFailedException(last.getRunId(), last.getCompleted().getError()));
  }

  /** Cancels what is under way; without effect after the end. */
  @Override
  public void close() {
    messages.close();
  }
}
