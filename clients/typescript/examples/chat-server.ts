/**
 * A chat back end: `POST /chat` with {"user", "session", "message"} answers server-sent events `delta`, `notice`
 * and `done`, or `failed`. A reader who closes the page ends the work on the service, too.
 *
 * Listens on 127.0.0.1 at PORT (any free port by default). Who may speak as which user is for your own login to say:
 * put it before this.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import {
  type ChatInit,
  DegradationKind,
  ErrorReason,
  NianlunClient,
  NianlunError,
} from "@nianlun/client";

const client = process.env["NIANLUN_KEY"] ? new NianlunClient() : NianlunClient.local();

async function chat(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const input = inputOf(await json(request));
  if (input === undefined) {
    response.writeHead(400).end('{"error": "user, session and message are needed, as strings"}');
    return;
  }
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  const left = new AbortController();
  response.on("close", () => left.abort());
  try {
    const stream = client.streamChat(input, { signal: left.signal });
    for await (const { event } of stream) {
      if (event.case === "textDelta") {
        send(response, "delta", { text: event.value.text });
      } else if (event.case === "notice") {
        send(response, "notice", { kind: DegradationKind[event.value.degradation?.kind ?? 0] });
      }
    }
    send(response, "done", { text: (await stream.answer()).answer?.text });
  } catch (error) {
    if (left.signal.aborted) {
      return; // Nobody is there to be told.
    }
    const reason = error instanceof NianlunError ? ErrorReason[error.reason] : "NO_ANSWER";
    send(response, "failed", { reason });
  }
  response.end();
}

function inputOf(body: unknown): ChatInit | undefined {
  const { user, session, message } = (body ?? {}) as Record<string, unknown>;
  if (typeof user !== "string" || typeof session !== "string" || typeof message !== "string") {
    return undefined;
  }
  return { userId: user, sessionId: session, message };
}

function send(response: ServerResponse, event: string, data: unknown): void {
  response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
}

const server = createServer((request, response) => {
  if (request.method !== "POST" || request.url !== "/chat") {
    response.writeHead(404).end();
    return;
  }
  chat(request, response).catch((error: unknown) => {
    console.error(error);
    response.writeHead(response.headersSent ? 200 : 400).end();
  });
});
server.listen(Number(process.env["PORT"] ?? 0), "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
process.once("SIGTERM", () => {
  server.close(() => client.close());
  server.closeAllConnections();
});
