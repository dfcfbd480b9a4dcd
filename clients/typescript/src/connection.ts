import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";

/** The services a client calls. */
export type ServiceName = "embedder" | "retriever" | "memory" | "orchestrator";

/** TLS. Without `rootCertificates` (PEM) the system's authorities are trusted. */
export interface TlsOptions {
  readonly rootCertificates?: Buffer;
}

/** How to reach a deployment. */
export interface ClientOptions {
  /** The bearer key; by default NIANLUN_KEY. */
  readonly key?: string;
  /**
   * host:port of each service, or one address for all (behind a proxy that routes by path). What is left
   * out comes from NIANLUN_MEMORY_TARGET and so on, else is 127.0.0.1 with the default port.
   */
  readonly targets?: string | Readonly<Partial<Record<ServiceName, string>>>;
  /** Deadline of unary calls, in milliseconds; 30,000 by default. */
  readonly timeoutMs?: number;
  /** Deadline of chats, exports, imports and job watching, in milliseconds; 180,000 by default. */
  readonly streamTimeoutMs?: number;
  /** TLS; off by default: then the key travels in plain text, which is for loopback and trusted networks. */
  readonly tls?: boolean | TlsOptions;
}

/** Options with every default filled in. */
export interface Connection {
  readonly key: string;
  readonly targets: Readonly<Record<ServiceName, string>>;
  readonly timeoutMs: number;
  readonly streamTimeoutMs: number;
  readonly tls: TlsOptions | undefined;
}

const DEFAULT_TARGETS: Readonly<Record<ServiceName, string>> = {
  embedder: "127.0.0.1:50051",
  retriever: "127.0.0.1:50052",
  memory: "127.0.0.1:50053",
  orchestrator: "127.0.0.1:50054",
};

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Fills in the defaults.
 *
 * @throws RangeError when a timeout is not a positive number.
 * @throws TypeError when a target is empty.
 */
export function connectionOf(
  options: ClientOptions,
  environment: Environment = process.env,
): Connection {
  return {
    key: options.key ?? environment["NIANLUN_KEY"] ?? "",
    targets: targetsOf(options.targets, environment),
    timeoutMs: positive("timeoutMs", options.timeoutMs ?? 30_000),
    streamTimeoutMs: positive(
      "streamTimeoutMs",
      options.streamTimeoutMs ?? Math.max(options.timeoutMs ?? 0, 180_000),
    ),
    tls: options.tls === true ? {} : options.tls || undefined,
  };
}

/**
 * Addresses and key of the stack that `make serve` started; its folder is `.nianlun` or NIANLUN_HOME.
 *
 * @throws Error when no stack is running there.
 */
export function localOptions(home?: string): Required<Pick<ClientOptions, "key" | "targets">> {
  const folder = home || process.env["NIANLUN_HOME"] || ".nianlun";
  let text: string;
  try {
    text = readFileSync(join(folder, "stack.json"), "utf8");
  } catch (cause) {
    throw new Error(
      `no local stack runs in ${resolve(folder)}; start one with \`make serve\` in this folder, ` +
        "or name the folder `.nianlun` of a running one with NIANLUN_HOME",
      { cause },
    );
  }
  const { key, targets } = JSON.parse(text) as {
    key: string;
    targets: Record<ServiceName, string>;
  };
  return { key, targets };
}

function targetsOf(
  given: ClientOptions["targets"],
  environment: Environment,
): Record<ServiceName, string> {
  const found = { ...DEFAULT_TARGETS };
  for (const name of Object.keys(found) as ServiceName[]) {
    const own = typeof given === "string" ? given : given?.[name];
    const target = own ?? (environment[`NIANLUN_${name.toUpperCase()}_TARGET`] || found[name]);
    if (target === "") {
      throw new TypeError(`the target of ${name} is empty`);
    }
    found[name] = target;
  }
  return found;
}

function positive(name: string, milliseconds: number): number {
  if (!(milliseconds > 0)) {
    throw new RangeError(`${name} must be a positive number of milliseconds, not ${milliseconds}`);
  }
  return milliseconds;
}
