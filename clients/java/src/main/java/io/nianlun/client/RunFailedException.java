package io.nianlun.client;

import io.nianlun.common.v1.ItemError;

/** A chat ended without an answer, although the call itself did not fail. */
public final class RunFailedException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final String runId;
  private final ItemError error;

  RunFailedException(String runId, ItemError error) {
    super(
        "run "
            + runId
            + " ended without an answer: "
            + (error.getMessage().isEmpty() ? "no reason was given" : error.getMessage()));
    this.runId = runId;
    this.error = error;
  }

  /** The run, for {@code GetRun}. */
  public String runId() {
    return runId;
  }

  /** Why it failed; unspecified where the service could not say. */
  public ItemError error() {
    return error;
  }
}
