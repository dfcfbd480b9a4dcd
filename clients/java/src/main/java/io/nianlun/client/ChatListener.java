package io.nianlun.client;

import io.nianlun.orchestrator.v1.ChatEvent;
import io.nianlun.orchestrator.v1.ChatResponse;

/**
 * Hears the events of one chat, on threads of the channel, one after another. Do nothing slow here: the next event
 * waits. An exception thrown by {@link #onEvent} cancels the run.
 */
@FunctionalInterface
public interface ChatListener {
  /** One event; the last is {@code completed}. */
  void onEvent(ChatEvent event);

  /** The whole answer, after the last event. */
  default void onAnswer(ChatResponse response) {}

  /**
   * The chat ended without an answer.
   *
   * @param failure a {@link NianlunException}, or a {@link RunFailedException} of a run that failed
   */
  default void onFailure(RuntimeException failure) {}
}
