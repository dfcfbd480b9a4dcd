package io.nianlun.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import io.nianlun.common.v1.ErrorReason;
import io.nianlun.common.v1.JobState;
import io.nianlun.memory.v1.AppendTurnRequest;
import io.nianlun.memory.v1.ExportUserRequest;
import io.nianlun.memory.v1.ListTurnsRequest;
import io.nianlun.memory.v1.Message;
import io.nianlun.memory.v1.Role;
import io.nianlun.memory.v1.Turn;
import io.nianlun.orchestrator.v1.ChatEvent;
import io.nianlun.orchestrator.v1.ChatEvent.EventCase;
import io.nianlun.orchestrator.v1.ChatInput;
import io.nianlun.orchestrator.v1.GetRunRequest;
import io.nianlun.orchestrator.v1.ListRunsRequest;
import io.nianlun.orchestrator.v1.Run;
import io.nianlun.orchestrator.v1.RunState;
import io.nianlun.retriever.v1.BackfillEmbeddingsRequest;
import io.nianlun.retriever.v1.CreateCollectionRequest;
import io.nianlun.retriever.v1.DocumentInput;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/**
 * The client against running services. Each test prints what it got. The services are started, and told to fail, by
 * what starts this program: see tests/support/rig.py of the project.
 */
@EnabledIfEnvironmentVariable(named = "NIANLUN_TEST_CONTROL", matches = ".+")
class StackTest {
  private static final PrintStream OUT =
      new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
  private static final HttpClient HTTP = HttpClient.newHttpClient();
  private static NianlunClient client;

  @BeforeAll
  static void open() {
    client = NianlunClient.fromEnvironment().build();
  }

  @AfterAll
  static void close() {
    client.close();
  }

  @Test
  void append() {
    AppendTurnRequest said =
        AppendTurnRequest.newBuilder()
            .setRequestId(Values.newRequestId())
            .setUserId("java-append")
            .setSessionId("s-1")
            .addMessages(
                Message.newBuilder().setRole(Role.ROLE_USER).setText("我叫陈川，主要写 Java。"))
            .build();
    var receipt = client.appendTurn(said);
    var again = client.appendTurn(said);
    List<Turn> turns = turns(client, "java-append");
    print("append: turn %s #%d, stored %d times", receipt.getTurnId(), receipt.getSequence(), turns.size());
    assertEquals(receipt, again);
    assertEquals(1, turns.size());
    assertEquals("我叫陈川，主要写 Java。", turns.get(0).getMessages(0).getText());
  }

  @Test
  void load() {
    var receipt = client.appendTurn("java-load", "s-1", "我叫陈川，住在杭州。", "");
    var loaded = client.loadMemory("java-load", "我住在哪里？", receipt.getPosition());
    print("load: %d fresh turns, %d blocks", loaded.getFreshTurnsCount(), loaded.getBlocksCount());
    assertTrue(loaded.getRendered().contains("杭州"));
    var stranger = client.loadMemory("java-load-other", "我住在哪里？");
    assertFalse(stranger.getRendered().contains("杭州"));
  }

  @Test
  void search() throws InterruptedException {
    var collection = CreateCollectionRequest.newBuilder().setCollectionId("java-papers").build();
    NianlunClient.call(() -> client.retriever().createCollection(collection));
    var accepted =
        client.upsertDocuments(
            "java-papers",
            List.of(
                document("sirnn", "SiRNN", "SiRNN runs secure inference of recurrent networks."),
                document("tea", "茶", "龙井茶产于杭州西湖一带，以清香著称。")));
    var job = client.await(accepted, Duration.ofSeconds(60));
    var english = client.search("secure inference of recurrent networks", "java-papers");
    var chinese = client.search("龙井茶产自哪里？", "java-papers");
    String found = english.getHits(0).getDocumentId() + ", " + chinese.getHits(0).getDocumentId();
    print("search: job %s did %d %s; found %s", job.getKind(), job.getDone(), job.getUnit(), found);
    assertEquals("sirnn, tea", found);
    assertEquals(2021, english.getHits(0).getMetadataOrThrow("year").getIntValue());
    var backfill = BackfillEmbeddingsRequest.newBuilder().setCollectionId("java-papers").build();
    var filled = NianlunClient.call(() -> client.retriever().backfillEmbeddings(backfill));
    assertEquals(JobState.JOB_STATE_SUCCEEDED, client.await(filled, Duration.ofSeconds(60)).getState());
  }

  @Test
  void stream() {
    ChatInput question = question("java-stream", "我叫什么名字？");
    List<EventCase> kinds = new ArrayList<>();
    StringBuilder streamed = new StringBuilder();
    try (ChatStream events = client.openChat(question)) {
      long sequence = 0;
      while (events.hasNext()) {
        ChatEvent event = events.next();
        assertEquals(++sequence, event.getSequence());
        kinds.add(event.getEventCase());
        streamed.append(event.getTextDelta().getText());
      }
      var response = events.response().orElseThrow();
      print("stream: %d events, answer \"%s\"", kinds.size(), response.getAnswer().getText());
      assertEquals("你叫陈川，主要写代码。", response.getAnswer().getText());
      assertEquals(response, events.answer());
      var run = GetRunRequest.newBuilder().setRunId(response.getRunId()).build();
      var state = NianlunClient.call(() -> client.orchestrator().getRun(run)).getRun().getState();
      assertEquals(RunState.RUN_STATE_COMPLETED, state);
    }
    assertEquals("你叫陈川，主要写代码。", streamed.toString());
    assertEquals(EventCase.COMPLETED, kinds.get(kinds.size() - 1));
    assertTrue(kinds.stream().filter(kind -> kind == EventCase.TEXT_DELTA).count() > 1);
    assertEquals("你叫陈川，主要写代码。", client.chat(question).getAnswer().getText());
  }

  @Test
  void listener() throws Exception {
    StringBuffer streamed = new StringBuffer();
    CompletableFuture<String> heard = new CompletableFuture<>();
    ChatListener listener =
        new ChatListener() {
          @Override
          public void onEvent(ChatEvent event) {
            streamed.append(event.getTextDelta().getText());
          }

          @Override
          public void onAnswer(io.nianlun.orchestrator.v1.ChatResponse response) {
            heard.complete(response.getAnswer().getText());
          }
        };
    try (ChatCall call = client.startChat(question("java-listener", "我叫什么名字？"), listener)) {
      var response = call.answer().get(30, TimeUnit.SECONDS);
      print("stream: a listener heard \"%s\"", heard.get(5, TimeUnit.SECONDS));
      assertEquals(response.getAnswer().getText(), heard.get());
      assertEquals("你叫陈川，主要写代码。", streamed.toString());
    }
  }

  @Test
  void cancel() throws Exception {
    ChatInput question = question("java-cancel", "讲一个长故事");
    try (ChatStream events = client.openChat(question)) {
      while (events.next().getEventCase() != EventCase.TEXT_DELTA) {
        // Read until the answer begins, then leave.
      }
    }
    class Left extends RuntimeException {}
    assertThrows(
        Left.class,
        () ->
            client.streamChat(
                question,
                event -> {
                  if (event.hasTextDelta()) {
                    throw new Left();
                  }
                }));
    CompletableFuture<Void> begun = new CompletableFuture<>();
    AtomicReference<RuntimeException> told = new AtomicReference<>();
    ChatListener listener =
        new ChatListener() {
          @Override
          public void onEvent(ChatEvent event) {
            if (event.hasTextDelta()) {
              begun.complete(null);
            }
          }

          @Override
          public void onFailure(RuntimeException failure) {
            told.set(failure);
          }
        };
    ChatCall call = client.startChat(question, listener);
    begun.get(30, TimeUnit.SECONDS);
    call.cancel();
    var failure = assertThrows(ExecutionException.class, () -> call.answer().get(5, TimeUnit.SECONDS));
    List<RunState> states = endedRuns("java-cancel");
    print("cancel: three runs are %s; the listener was told: %s", states, failure.getCause());
    assertEquals(Status.Code.CANCELLED, ((NianlunException) failure.getCause()).code());
    assertEquals(failure.getCause(), told.get());
    RunState cancelled = RunState.RUN_STATE_CANCELLED;
    assertEquals(List.of(cancelled, cancelled, cancelled), states);
  }

  @Test
  void deadline() throws Exception {
    try (NianlunClient far = far("PROXIED").build();
        NianlunClient hasty = far("PROXIED").timeout(Duration.ofMillis(500)).build()) {
      far.loadMemory("java-deadline", "?");
      control("hold");
      long started = System.nanoTime();
      var error =
          assertThrows(
              NianlunException.class, () -> hasty.loadMemory("java-deadline", "?"));
      long tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - started);
      control("release");
      far.loadMemory("java-deadline", "?");
      print("deadline: of 500 ms, ended after %d ms: %s", tookMs, error);
      assertEquals(Status.Code.DEADLINE_EXCEEDED, error.code());
      assertTrue(error.retryable());
      assertTrue(error.requestId().matches("[0-9a-f-]{36}"));
      assertTrue(tookMs >= 450 && tookMs < 5_000, tookMs + " ms");
    }
  }

  @Test
  void badKey() {
    for (String key : List.of("", "nl_nobody", "nl_" + "x".repeat(43))) {
      try (NianlunClient stranger =
          NianlunClient.builder(key).memory(environment("NIANLUN_MEMORY_TARGET")).build()) {
        var error =
            assertThrows(NianlunException.class, () -> stranger.loadMemory("u", "?"));
        print("bad key: %s", error);
        assertEquals(Status.Code.UNAUTHENTICATED, error.code());
        assertEquals(ErrorReason.ERROR_REASON_UNAUTHENTICATED, error.reason());
        assertFalse(error.retryable());
        assertTrue(error.requestId().matches("[0-9a-f-]{36}"));
      }
    }
  }

  @Test
  void errors() {
    var refused =
        assertThrows(NianlunException.class, () -> client.appendTurn("", "s", "x", ""));
    var missing =
        assertThrows(NianlunException.class, () -> client.search("anything", "java-nowhere"));
    print("errors: %s%nerrors: %s", refused, missing);
    assertEquals("user_id", refused.violations().get(0).field());
    assertEquals(ErrorReason.ERROR_REASON_NOT_FOUND, missing.reason());
    assertEquals("java-nowhere", missing.resource().orElseThrow().name());
  }

  @Test
  void retry() throws Exception {
    try (NianlunClient far = far("PROXIED").build()) {
      far.loadMemory("java-lost", "?");
      control("cut");
      var receipt = far.appendTurn("java-lost", "s-1", "只说一次。", "");
      List<Turn> turns = turns(far, "java-lost");
      print("retry: turn %s after a lost answer, stored %d times", receipt.getTurnId(), turns.size());
      assertEquals(1, turns.size());
      assertEquals(receipt.getTurnId(), turns.get(0).getTurnId());
    }
  }

  @Test
  void restart() throws Exception {
    try (NianlunClient far = far("RESTARTED").build()) {
      var first = far.appendTurn("java-restart", "s-1", "我住在杭州。", "");
      control("stop");
      long started = System.nanoTime();
      var append =
          CompletableFuture.supplyAsync(
              () -> far.appendTurn("java-restart", "s-1", "我在等服务重启。", ""));
      var load =
          CompletableFuture.supplyAsync(() -> far.loadMemory("java-restart", "我住在哪里？"));
      Thread.sleep(1_500);
      control("start");
      var second = append.get(40, TimeUnit.SECONDS);
      var loaded = load.get(40, TimeUnit.SECONDS);
      long tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - started);
      print("restart: answered %d ms after the service had stopped, #%d", tookMs, second.getSequence());
      assertEquals(1, first.getSequence());
      assertEquals(2, second.getSequence());
      assertTrue(loaded.getRendered().contains("杭州"));
      assertEquals(2, turns(far, "java-restart").size());
    }
  }

  @Test
  void nobodyThere() {
    try (NianlunClient nowhere = NianlunClient.builder("nl_x").memory("127.0.0.1:1").build()) {
      long started = System.nanoTime();
      var error = assertThrows(NianlunException.class, () -> nowhere.loadMemory("u", "?"));
      long tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - started);
      print("restart: nobody there, reported after %d ms: %s", tookMs, error);
      assertEquals(Status.Code.UNAVAILABLE, error.code());
      assertEquals(ErrorReason.ERROR_REASON_UNSPECIFIED, error.reason());
      assertTrue(tookMs < 15_000, tookMs + " ms");
      // Nobody has repeated the request id: it is the one that was sent.
      assertTrue(error.requestId().matches("[0-9a-f-]{36}"));
      AppendTurnRequest said = AppendTurnRequest.newBuilder().setRequestId("mine").build();
      var lost = assertThrows(NianlunException.class, () -> nowhere.appendTurn(said));
      assertEquals("mine", lost.requestId());
    }
  }

  @Test
  void tls() {
    String target = environment("NIANLUN_TEST_TLS");
    Path authority = Path.of(environment("NIANLUN_TEST_CA"));
    NianlunClient.Builder options = NianlunClient.fromEnvironment().memory(target);
    try (NianlunClient secure = options.tls(authority).build();
        NianlunClient stranger = options.tls().build()) {
      var receipt = secure.appendTurn("java-tls", "s-1", "加密的。", "");
      var error =
          assertThrows(NianlunException.class, () -> stranger.loadMemory("java-tls", "?"));
      print("tls: turn #%d; without the authority: %s", receipt.getSequence(), error);
      assertEquals(1, receipt.getSequence());
      assertEquals(Status.Code.UNAVAILABLE, error.code());
    }
  }

  @Test
  void export() {
    client.appendTurn("java-export", "s-1", "我喜欢爬山。", "记下了。");
    ExportUserRequest request = ExportUserRequest.newBuilder().setUserId("java-export").build();
    List<String> lines = new ArrayList<>();
    try (var parts = client.stream(() -> client.memory().exportUser(request))) {
      parts.forEachRemaining(part -> lines.addAll(part.getLinesList()));
    }
    print("export: %d lines", lines.size());
    assertTrue(lines.stream().anyMatch(line -> line.contains("我喜欢爬山。")));
  }

  @Test
  void erase() {
    client.appendTurn("java-erase", "s-1", "请忘掉这句话。", "");
    client.appendTurn("java-erase", "s-2", "也请忘掉这句话。", "");
    var unnamed = assertThrows(NianlunException.class, () -> client.eraseSession("java-erase", ""));
    assertEquals("session_id", unnamed.violations().get(0).field());
    assertFalse(client.eraseSession("java-erase", "s-2").getMemoryReceiptId().isEmpty());
    assertEquals(1, turns(client, "java-erase").size());
    var receipt = client.eraseUser("java-erase");
    int left = turns(client, "java-erase").size();
    print("erase: receipt %s, %d turns left", receipt.getMemoryReceiptId(), left);
    assertFalse(receipt.getMemoryReceiptId().isEmpty());
    assertEquals(0, left);
  }

  private static void print(String format, Object... values) {
    OUT.printf(format + "%n", values);
  }

  private static String environment(String name) {
    return System.getenv().getOrDefault(name, "");
  }

  private static NianlunClient.Builder far(String name) {
    return NianlunClient.fromEnvironment().memory(environment("NIANLUN_TEST_" + name));
  }

  private static ChatInput question(String user, String message) {
    return ChatInput.newBuilder().setUserId(user).setSessionId("s-1").setMessage(message).build();
  }

  private static DocumentInput document(String id, String title, String text) {
    return DocumentInput.newBuilder()
        .setDocumentId(id)
        .setTitle(title)
        .setText(text)
        .putMetadata("year", Values.value(2021))
        .build();
  }

  private static List<Turn> turns(NianlunClient of, String user) {
    ListTurnsRequest request = ListTurnsRequest.newBuilder().setUserId(user).build();
    return NianlunClient.call(() -> of.memory().listTurns(request)).getTurnsList();
  }

  /** The states of a user's runs, once none goes on any more. */
  private static List<RunState> endedRuns(String user) throws InterruptedException {
    ListRunsRequest request = ListRunsRequest.newBuilder().setUserId(user).build();
    for (int left = 100; ; left--) {
      List<RunState> states =
          NianlunClient.call(() -> client.orchestrator().listRuns(request)).getRunsList().stream()
              .map(Run::getState)
              .toList();
      if (left == 0 || !states.contains(RunState.RUN_STATE_RUNNING)) {
        return states;
      }
      Thread.sleep(50);
    }
  }

  /** Asks for a failure, or for its end. */
  private static void control(String action) throws Exception {
    URI address = URI.create(environment("NIANLUN_TEST_CONTROL") + "/" + action);
    HttpRequest request =
        HttpRequest.newBuilder(address).POST(HttpRequest.BodyPublishers.noBody()).build();
    assertEquals(204, HTTP.send(request, HttpResponse.BodyHandlers.discarding()).statusCode());
  }
}
