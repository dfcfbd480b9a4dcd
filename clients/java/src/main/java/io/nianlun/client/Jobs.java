package io.nianlun.client;

import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import io.nianlun.common.v1.Job;
import java.time.Duration;

/** Waiting for background jobs. */
final class Jobs {
  private Jobs() {}

  /** Looks until the job has ended, quickly at first, then twice a second. */
  static Job await(Job first, Duration limit, Look look) throws InterruptedException {
    long deadline = System.nanoTime() + limit.toNanos();
    Job job = first;
    for (long pause = 50; !hasSucceeded(job); pause = Math.min(pause * 3 / 2, 500)) {
      if (System.nanoTime() - deadline > 0) {
        throw new JobFailedException(job, "has not ended after " + limit + "; it goes on");
      }
      Thread.sleep(pause);
      String id = job.getJobId();
      job = NianlunClient.call(() -> look.at(id));
    }
    return job;
  }

  /**
   * The job in an answer.
   *
   * @throws IllegalArgumentException when it has none
   */
  static Job of(Message answer) {
    FieldDescriptor field = answer.getDescriptorForType().findFieldByName("job");
    if (field != null
        && !field.isRepeated()
        && answer.getField(field) instanceof Job job
        && !job.getJobId().isEmpty()) {
      return job;
    }
    throw new IllegalArgumentException(answer.getDescriptorForType().getName() + " carries no job");
  }

  /** Whether the retriever gave this answer; else the memory service did, which alone has jobs beside it. */
  static boolean ofRetriever(Message answer) {
    String file = answer.getDescriptorForType().getFile().getPackage();
    return switch (file) {
      case "nianlun.retriever.v1" -> true;
      case "nianlun.memory.v1" -> false;
      default -> throw new IllegalArgumentException(file + " has no jobs");
    };
  }

  static io.nianlun.retriever.v1.GetJobRequest byRetriever(String jobId) {
    return io.nianlun.retriever.v1.GetJobRequest.newBuilder().setJobId(jobId).build();
  }

  static io.nianlun.memory.v1.GetJobRequest byMemory(String jobId) {
    return io.nianlun.memory.v1.GetJobRequest.newBuilder().setJobId(jobId).build();
  }

  private static boolean hasSucceeded(Job job) {
    return switch (job.getState()) {
      case JOB_STATE_SUCCEEDED -> true;
      case JOB_STATE_FAILED ->
          throw new JobFailedException(job, "failed: " + job.getError().getMessage());
      case JOB_STATE_CANCELLED -> throw new JobFailedException(job, "was cancelled");
      default -> false;
    };
  }

  /** Looks at a job again. */
  @FunctionalInterface
  interface Look {
    /** The job as it is now. */
    Job at(String jobId);
  }
}
