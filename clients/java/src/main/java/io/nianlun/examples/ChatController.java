package io.nianlun.examples;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpHandler;
import com.sun.net.httpserver.HttpServer;
import io.nianlun.client.ChatStream;
import io.nianlun.client.NianlunClient;
import io.nianlun.client.NianlunException;
import io.nianlun.client.RunFailedException;
import io.nianlun.orchestrator.v1.ChatEvent;
import io.nianlun.orchestrator.v1.ChatInput;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;

/**
 * A chat back end: {@code POST /chat?user=..&session=..} with the message as the body (UTF-8) answers server-sent
 * events {@code delta}, {@code notice} and {@code done}, or {@code failed}. A reader who closes the page ends the run.
 *
 * <p>It stands on the JDK's own HTTP server; in a framework the body of {@link #stream} is what a controller does with
 * its emitter. Who may speak as which user is for your own login to say: put it before this.
 *
 * <p>Environment: as {@link Conversation}, and {@code PORT} (any free port by default).
 */
public final class ChatController implements HttpHandler {
  private final NianlunClient client;

  private ChatController(NianlunClient client) {
    this.client = client;
  }

  /** Serves until the process is told to end. */
  public static void main(String[] args) throws IOException {
    NianlunClient client = NianlunClient.fromEnvironment().build();
    int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "0"));
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
    server.createContext("/chat", new ChatController(client));
    server.setExecutor(Executors.newCachedThreadPool()); // A chat holds a thread while it streams.
    server.start();
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  server.stop(0);
                  client.close();
                }));
    System.out.println("listening on http://127.0.0.1:" + server.getAddress().getPort());
  }

  @Override
  public void handle(HttpExchange exchange) throws IOException {
    try (exchange) {
      Map<String, String> query = query(exchange.getRequestURI().getRawQuery());
      String message =
          new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
      boolean complete = query.containsKey("user") && query.containsKey("session");
      if (!exchange.getRequestMethod().equals("POST") || !complete || message.isBlank()) {
        exchange.sendResponseHeaders(400, -1);
        return;
      }
      ChatInput input =
          ChatInput.newBuilder()
              .setUserId(query.get("user"))
              .setSessionId(query.get("session"))
              .setMessage(message)
              .build();
      exchange.getResponseHeaders().set("Content-Type", "text/event-stream; charset=utf-8");
      exchange.getResponseHeaders().set("Cache-Control", "no-store");
      exchange.sendResponseHeaders(200, 0);
      stream(input, exchange.getResponseBody());
    }
  }

  /** Writing to a reader who has left throws; closing the stream then ends the work of the service. */
  private void stream(ChatInput input, OutputStream reader) throws IOException {
    try (ChatStream events = client.openChat(input)) {
      while (events.hasNext()) {
        ChatEvent event = events.next();
        switch (event.getEventCase()) {
          case TEXT_DELTA -> send(reader, "delta", event.getTextDelta().getText());
          case NOTICE ->
              send(reader, "notice", event.getNotice().getDegradation().getKind().name());
          default -> {
            // Steps, citations and tool calls: for a reader who is shown a timeline.
          }
        }
      }
      send(reader, "done", events.answer().getAnswer().getText());
    } catch (NianlunException failure) {
      send(reader, "failed", failure.reason().name());
    } catch (RunFailedException failure) {
      send(reader, "failed", failure.error().getReason().name());
    }
  }

  private static void send(OutputStream reader, String event, String data) throws IOException {
    StringBuilder text = new StringBuilder("event: ").append(event).append('\n');
    // Not lines(): a break at the end of a piece is part of the text.
    for (String line : data.split("\r\n|\r|\n", -1)) {
      text.append("data: ").append(line).append('\n');
    }
    reader.write(text.append('\n').toString().getBytes(StandardCharsets.UTF_8));
    reader.flush();
  }

  private static Map<String, String> query(String raw) {
    Map<String, String> found = new HashMap<>();
    for (String pair : raw == null ? new String[0] : raw.split("&")) {
      int equals = pair.indexOf('=');
      if (equals > 0) {
        String value = URLDecoder.decode(pair.substring(equals + 1), StandardCharsets.UTF_8);
        found.put(pair.substring(0, equals), value);
      }
    }
    return found;
  }
}
