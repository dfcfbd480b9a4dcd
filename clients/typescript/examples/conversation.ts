/**
 * Appends a turn, loads the memory that a question needs, and streams a chat in a new session.
 *
 * Addresses and key come from the environment (NIANLUN_KEY, NIANLUN_MEMORY_TARGET, ...); without a key, from
 * the stack that `make serve` started. Argument: the user id.
 */
import { DegradationKind, NianlunClient, NianlunError } from "@nianlun/client";

async function converse(client: NianlunClient, userId: string): Promise<void> {
  const said = "我叫陈川，是后端工程师，主要写 TypeScript。";
  const receipt = await client.appendTurn(userId, "ts-1", said, "好的，记下了。");
  console.log(`turn: ${receipt.turnId} #${receipt.sequence}`);

  const more = { sessionId: "ts-2", atLeast: receipt.position };
  const memory = await client.loadMemory(userId, "我叫什么？", more);
  console.log(`memory: ${memory.rendered.replaceAll("\n", " / ")}`);

  const stream = client.streamChat({
    userId,
    sessionId: "ts-2",
    message: "我叫什么名字？做什么工作？",
    atLeastPosition: receipt.position,
  });
  for await (const { event } of stream) {
    switch (event.case) {
      case "stepStarted":
        console.log(`step: ${event.value.step}`);
        break;
      case "textDelta":
        console.log(`delta: ${event.value.text}`);
        break;
      case "notice":
        console.log(`notice: ${DegradationKind[event.value.degradation?.kind ?? 0]}`);
        break;
      default: // New kinds may be added: skip what you do not know.
    }
  }
  console.log(`answer: ${stream.response?.answer?.text.replaceAll("\n", " ")}`);
}

const client = process.env["NIANLUN_KEY"] ? new NianlunClient() : NianlunClient.local();
try {
  await converse(client, process.argv[2] ?? "u_ts");
} catch (error) {
  if (!(error instanceof NianlunError)) {
    throw error;
  }
  console.log(`failed: ${error.message}`);
  process.exitCode = 1;
} finally {
  client.close();
}
