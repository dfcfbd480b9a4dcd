package io.nianlun.examples;

import io.nianlun.client.NianlunClient;
import io.nianlun.client.NianlunException;
import io.nianlun.memory.v1.AppendTurnResponse;
import io.nianlun.memory.v1.Block;
import io.nianlun.memory.v1.LoadMemoryResponse;
import io.nianlun.orchestrator.v1.ChatEvent;
import io.nianlun.orchestrator.v1.ChatInput;
import io.nianlun.orchestrator.v1.ChatResponse;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Appends a turn, loads the memory that a question needs, and streams a chat in a new session.
 *
 * <p>Environment: {@code NIANLUN_KEY} (required), {@code NIANLUN_MEMORY_TARGET} and
 * {@code NIANLUN_ORCHESTRATOR_TARGET} (host:port; the defaults are 127.0.0.1 with ports 50053 and 50054, as in the
 * containers; {@code make serve} takes free ports and prints them). Argument: the user id.
 */
public final class Conversation {
  private final NianlunClient client;
  private final PrintStream out;

  private Conversation(NianlunClient client, PrintStream out) {
    this.client = client;
    this.out = out;
  }

  /** Runs the example. */
  public static void main(String[] args) {
    String user = args.length > 0 ? args[0] : "u_java";
    // System.out would use the platform's character set, which need not know Chinese.
    PrintStream out =
        new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    try (NianlunClient client = NianlunClient.fromEnvironment().build()) {
      new Conversation(client, out).run(user);
    } catch (NianlunException failure) {
      out.println("failed: " + failure.reason() + " " + failure.getMessage());
      System.exit(1);
    }
  }

  private void run(String user) {
    AppendTurnResponse receipt =
        client.appendTurn(user, "java-1", "我叫陈川，是后端工程师，主要写 Java。", "好的，记下了。");
    out.println("turn: " + receipt.getTurnId() + " #" + receipt.getSequence());

    LoadMemoryResponse memory = client.loadMemory(user, "我叫什么？", receipt.getPosition());
    out.println("fresh turns: " + memory.getFreshTurnsCount());
    for (Block block : memory.getBlocksList()) {
      out.println("memory [" + block.getTrust() + "] " + block.getText().replace("\n", " / "));
    }

    ChatInput question =
        ChatInput.newBuilder()
            .setUserId(user)
            .setSessionId("java-2")
            .setMessage("我叫什么名字？做什么工作？")
            .setAtLeastPosition(receipt.getPosition())
            .build();
    ChatResponse response = client.streamChat(question, this::show);
    out.println("answer: " + response.getAnswer().getText().replace("\n", " "));
    response.getDegradationsList().forEach(d -> out.println("degraded: " + d.getKind()));
    out.println("java: ok");
  }

  private void show(ChatEvent event) {
    switch (event.getEventCase()) {
      case STEP_STARTED -> out.println("step: " + event.getStepStarted().getStep());
      case STEP_FINISHED ->
          out.printf(
              "step: %s %s %.0f ms%n",
              event.getStepFinished().getStep(),
              event.getStepFinished().getStatus(),
              event.getStepFinished().getMs());
      case TEXT_DELTA -> out.println("delta: " + event.getTextDelta().getText());
      case NOTICE -> out.println("notice: " + event.getNotice().getDegradation().getKind());
      default -> out.println("event: " + event.getEventCase());
    }
  }
}
