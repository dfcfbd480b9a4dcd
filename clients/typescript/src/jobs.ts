import { setTimeout as sleep } from "node:timers/promises";
import type { CallOptions } from "./calls.js";
import { JobFailedError } from "./errors.js";
import { type Job, JobState } from "./gen/nianlun/common/v1/common_pb.js";

/** An answer that carries a job, of `upsertDocuments`, `endSession` and so on. */
export interface JobAnswer {
  readonly $typeName: string;
  readonly job?: Job | undefined;
}

/** How to wait for a job. */
export interface WaitOptions {
  /** How long to wait in all, in milliseconds; 60,000 by default. */
  readonly timeoutMs?: number;
  /** Sees the job at every look. */
  readonly onProgress?: (job: Job) => void;
  /** Aborting it ends the waiting; the job goes on. */
  readonly signal?: AbortSignal;
}

/** Looks at a job again. */
export type Look = (jobId: string, options: CallOptions) => Promise<Job | undefined>;

/** Waits until a job has ended, looking quickly at first, then twice a second. */
export async function waitFor(first: Job, look: Look, options: WaitOptions): Promise<Job> {
  const { timeoutMs = 60_000, onProgress, signal } = options;
  const deadline = Date.now() + timeoutMs;
  let job = first;
  for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 1.5, 500)) {
    onProgress?.(job);
    if (ENDED.has(job.state)) {
      return succeeded(job);
    }
    if (Date.now() > deadline) {
      const message = `${name(job)} has not ended after ${timeoutMs} ms; it goes on`;
      throw new JobFailedError(job, message);
    }
    await sleep(pauseMs, undefined, signal === undefined ? {} : { signal });
    job = (await look(job.jobId, signal === undefined ? {} : { signal })) ?? job;
  }
}

const ENDED: ReadonlySet<JobState> = new Set([
  JobState.SUCCEEDED,
  JobState.FAILED,
  JobState.CANCELLED,
]);

function succeeded(job: Job): Job {
  if (job.state !== JobState.SUCCEEDED) {
    const state = JobState[job.state]?.toLowerCase() ?? `state ${job.state}`;
    throw new JobFailedError(job, `${name(job)} ${state}: ${job.error?.message ?? ""}`);
  }
  return job;
}

function name(job: Job): string {
  return `job ${job.jobId} (${job.kind})`;
}
