package io.nianlun.client;

import io.nianlun.common.v1.Job;

/** A job ended without success, or not in time. */
public final class JobFailedException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final Job job;

  JobFailedException(Job job, String why) {
    super("job " + job.getJobId() + " (" + job.getKind() + ") " + why);
    this.job = job;
  }

  /** Its last known state; one that was late goes on. */
  public Job job() {
    return job;
  }
}
