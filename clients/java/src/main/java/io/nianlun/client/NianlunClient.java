package io.nianlun.client;

import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.AbstractStub;
import io.nianlun.common.v1.Job;
import io.nianlun.embedder.v1.EmbedderServiceGrpc;
import io.nianlun.memory.v1.AppendTurnRequest;
import io.nianlun.memory.v1.AppendTurnResponse;
import io.nianlun.memory.v1.EndSessionRequest;
import io.nianlun.memory.v1.EndSessionResponse;
import io.nianlun.memory.v1.LoadMemoryRequest;
import io.nianlun.memory.v1.LoadMemoryResponse;
import io.nianlun.memory.v1.MemoryServiceGrpc;
import io.nianlun.memory.v1.Message;
import io.nianlun.memory.v1.Role;
import io.nianlun.orchestrator.v1.ChatEvent;
import io.nianlun.orchestrator.v1.ChatInput;
import io.nianlun.orchestrator.v1.ChatRequest;
import io.nianlun.orchestrator.v1.ChatResponse;
import io.nianlun.orchestrator.v1.EraseSessionRequest;
import io.nianlun.orchestrator.v1.EraseSessionResponse;
import io.nianlun.orchestrator.v1.EraseUserRequest;
import io.nianlun.orchestrator.v1.EraseUserResponse;
import io.nianlun.orchestrator.v1.OrchestratorServiceGrpc;
import io.nianlun.orchestrator.v1.StreamChatRequest;
import io.nianlun.retriever.v1.DocumentInput;
import io.nianlun.retriever.v1.RetrieverServiceGrpc;
import io.nianlun.retriever.v1.SearchRequest;
import io.nianlun.retriever.v1.SearchResponse;
import io.nianlun.retriever.v1.SearchScope;
import io.nianlun.retriever.v1.UpsertDocumentsRequest;
import io.nianlun.retriever.v1.UpsertDocumentsResponse;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Iterator;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;

/**
 * Calls the four services. It is safe for use by many threads; make one and close it at the end.
 *
 * <p>The methods here cover the common path and throw {@link NianlunException}. For everything else {@link #memory()},
 * {@link #retriever()}, {@link #orchestrator()} and {@link #embedder()} give the generated stubs, with key, request id
 * and deadline set; {@link #call} and {@link #stream} make their failures typed as well. Stubs of the other kinds are
 * made over {@link #memoryChannel()} and its like.
 */
public final class NianlunClient implements AutoCloseable {
  private final Connections connections;
  private final Duration timeout;
  private final Duration streamTimeout;
  private final Channel embedder;
  private final Channel retriever;
  private final Channel memory;
  private final Channel orchestrator;

  private NianlunClient(Builder options) {
    timeout = options.timeout;
    streamTimeout = options.streamTimeout;
    connections = new Connections(options.credentials, options.key);
    embedder = connections.open(options.embedder, EmbedderServiceGrpc.getServiceDescriptor());
    retriever = connections.open(options.retriever, RetrieverServiceGrpc.getServiceDescriptor());
    memory = connections.open(options.memory, MemoryServiceGrpc.getServiceDescriptor());
    orchestrator =
        connections.open(options.orchestrator, OrchestratorServiceGrpc.getServiceDescriptor());
  }

  /** Options of a client; only the key is required. */
  public static Builder builder(String key) {
    return new Builder(key);
  }

  /**
   * Options from the environment: NIANLUN_KEY, and NIANLUN_EMBEDDER_TARGET, NIANLUN_RETRIEVER_TARGET,
   * NIANLUN_MEMORY_TARGET, NIANLUN_ORCHESTRATOR_TARGET where they differ from the defaults.
   *
   * @throws IllegalStateException when NIANLUN_KEY is not set
   */
  public static Builder fromEnvironment() {
    Map<String, String> environment = System.getenv();
    String key = environment.getOrDefault("NIANLUN_KEY", "");
    if (key.isEmpty()) {
      throw new IllegalStateException(
          "NIANLUN_KEY is not set: it is the key of your tenant; of a local stack,"
              + " `eval \"$(nianlun stack env)\"` sets it and the addresses");
    }
    UnaryOperator<String> target =
        name -> environment.getOrDefault("NIANLUN_" + name + "_TARGET", "");
    Builder builder = new Builder(key);
    builder.embedder = orElse(target.apply("EMBEDDER"), builder.embedder);
    builder.retriever = orElse(target.apply("RETRIEVER"), builder.retriever);
    builder.memory = orElse(target.apply("MEMORY"), builder.memory);
    builder.orchestrator = orElse(target.apply("ORCHESTRATOR"), builder.orchestrator);
    return builder;
  }

  /** Stores one exchange. Visible to {@link #loadMemory} when this returns. An empty answer is left out. */
  public AppendTurnResponse appendTurn(
      String userId, String sessionId, String userText, String assistantText) {
    AppendTurnRequest.Builder request =
        AppendTurnRequest.newBuilder()
            .setUserId(userId)
            .setSessionId(sessionId)
            .addMessages(Message.newBuilder().setRole(Role.ROLE_USER).setText(userText));
    if (!assistantText.isEmpty()) {
      request.addMessages(
          Message.newBuilder().setRole(Role.ROLE_ASSISTANT).setText(assistantText));
    }
    return appendTurn(request.build());
  }

  /** Stores one exchange; a {@code request_id} of the caller makes it safe to repeat after a failure. */
  public AppendTurnResponse appendTurn(AppendTurnRequest request) {
    return call(() -> memory().appendTurn(request));
  }

  /** Loads what is known about the user for a question. */
  public LoadMemoryResponse loadMemory(String userId, String query) {
    return loadMemory(userId, query, "");
  }

  /** Loads what is known about the user for a question, at least as new as the position of a receipt. */
  public LoadMemoryResponse loadMemory(String userId, String query, String position) {
    return loadMemory(
        LoadMemoryRequest.newBuilder()
            .setUserId(userId)
            .setQuery(query)
            .setAtLeast(position)
            .build());
  }

  /** Loads what is known about the user; the request says of which layers and sessions, and how much. */
  public LoadMemoryResponse loadMemory(LoadMemoryRequest request) {
    return call(() -> memory().loadMemory(request));
  }

  /** Ends a session: it is digested and summarised in the background; {@link #await} waits for that. */
  public EndSessionResponse endSession(String userId, String sessionId) {
    EndSessionRequest request =
        EndSessionRequest.newBuilder().setUserId(userId).setSessionId(sessionId).build();
    return call(() -> memory().endSession(request));
  }

  /** Stores or replaces documents; {@link #await} waits for the job that chunks and embeds them. */
  public UpsertDocumentsResponse upsertDocuments(
      String collectionId, Iterable<DocumentInput> documents) {
    UpsertDocumentsRequest request =
        UpsertDocumentsRequest.newBuilder()
            .setCollectionId(collectionId)
            .addAllDocuments(documents)
            .build();
    return call(() -> retriever().upsertDocuments(request));
  }

  /** Searches one collection. */
  public SearchResponse search(String query, String collectionId) {
    return search(
        SearchRequest.newBuilder()
            .setQuery(query)
            .addScopes(SearchScope.newBuilder().setCollectionId(collectionId))
            .build());
  }

  /** Searches collections. */
  public SearchResponse search(SearchRequest request) {
    return call(() -> retriever().search(request));
  }

  /** Answers a message as one whole; the turn is remembered. Its deadline is that of streams. */
  public ChatResponse chat(ChatInput input) {
    ChatRequest request = ChatRequest.newBuilder().setInput(input).build();
    return call(() -> within(orchestrator(), streamTimeout).chat(request));
  }

  /**
   * Answers a message as events to iterate over; close what this gives.
   *
   * <pre>{@code
   * try (ChatStream events = client.openChat(input)) {
   *   while (events.hasNext()) {
   *     System.out.print(events.next().getTextDelta().getText());
   *   }
   * }
   * }</pre>
   */
  public ChatStream openChat(ChatInput input) {
    StreamChatRequest request = StreamChatRequest.newBuilder().setInput(input).build();
    return new ChatStream(stream(() -> within(orchestrator(), streamTimeout).streamChat(request)));
  }

  /**
   * Answers a message as events. {@code onEvent} sees each of them in order, on the calling thread; an exception it
   * throws cancels the run.
   *
   * @return the completed answer
   * @throws NianlunException when the call fails
   * @throws RunFailedException when the run ended without an answer
   */
  public ChatResponse streamChat(ChatInput input, Consumer<ChatEvent> onEvent) {
    try (ChatStream events = openChat(input)) {
      events.forEachRemaining(onEvent);
      return events.answer();
    }
  }

  /** Answers a message as events that a listener hears, without a waiting thread. */
  public ChatCall startChat(ChatInput input, ChatListener listener) {
    ChatCall call = new ChatCall(listener);
    StreamChatRequest request = StreamChatRequest.newBuilder().setInput(input).build();
    within(OrchestratorServiceGrpc.newStub(orchestrator), streamTimeout)
        .streamChat(request, call.observer());
    return call;
  }

  /** Forgets a user: turns, facts, notes, summaries, vectors, runs, queued work. */
  public EraseUserResponse eraseUser(String userId) {
    EraseUserRequest request = EraseUserRequest.newBuilder().setUserId(userId).build();
    return call(() -> orchestrator().eraseUser(request));
  }

  /** Forgets one session of a user, and what was derived from it; one without a name is refused. */
  public EraseSessionResponse eraseSession(String userId, String sessionId) {
    EraseSessionRequest request =
        EraseSessionRequest.newBuilder().setUserId(userId).setSessionId(sessionId).build();
    return call(() -> orchestrator().eraseSession(request));
  }

  /**
   * Waits for the job in an answer: of {@link #upsertDocuments}, {@link #endSession}, or of a stub that starts one
   * ({@code startReembed}, {@code calibrate}, {@code refreshSummary}, ...).
   *
   * @throws JobFailedException when it failed, was cancelled, or has not ended in time; then it goes on
   * @throws IllegalArgumentException when the answer carries no job
   */
  public Job await(com.google.protobuf.Message answer, Duration limit) throws InterruptedException {
    Jobs.Look look =
        Jobs.ofRetriever(answer)
            ? id -> retriever().getJob(Jobs.byRetriever(id)).getJob()
            : id -> memory().getJob(Jobs.byMemory(id)).getJob();
    return Jobs.await(Jobs.of(answer), limit, look);
  }

  /** Runs a call of a generated stub and makes its failure a {@link NianlunException}. */
  public static <T> T call(Supplier<T> rpc) {
    try {
      return rpc.get();
    } catch (StatusRuntimeException failure) {
      throw NianlunException.of(failure);
    }
  }

  /**
   * Runs a streaming call of a blocking stub; closing what this gives cancels it. For instance
   * {@code client.stream(() -> client.memory().exportUser(request))}; give longer streams a deadline of their own with
   * {@code withDeadlineAfter}.
   */
  public <T> MessageStream<T> stream(Supplier<Iterator<T>> rpc) {
    return new MessageStream<>(rpc);
  }

  /** The generated blocking stub with key, request id and deadline. */
  public EmbedderServiceGrpc.EmbedderServiceBlockingStub embedder() {
    return within(EmbedderServiceGrpc.newBlockingStub(embedder), timeout);
  }

  /** The generated blocking stub with key, request id and deadline. */
  public RetrieverServiceGrpc.RetrieverServiceBlockingStub retriever() {
    return within(RetrieverServiceGrpc.newBlockingStub(retriever), timeout);
  }

  /** The generated blocking stub with key, request id and deadline. */
  public MemoryServiceGrpc.MemoryServiceBlockingStub memory() {
    return within(MemoryServiceGrpc.newBlockingStub(memory), timeout);
  }

  /** The generated blocking stub with key, request id and deadline. */
  public OrchestratorServiceGrpc.OrchestratorServiceBlockingStub orchestrator() {
    return within(OrchestratorServiceGrpc.newBlockingStub(orchestrator), timeout);
  }

  /** For stubs that are not blocking: carries key and request ids, sets no deadline. */
  public Channel embedderChannel() {
    return embedder;
  }

  /** For stubs that are not blocking: carries key and request ids, sets no deadline. */
  public Channel retrieverChannel() {
    return retriever;
  }

  /** For stubs that are not blocking: carries key and request ids, sets no deadline. */
  public Channel memoryChannel() {
    return memory;
  }

  /** For stubs that are not blocking: carries key and request ids, sets no deadline. */
  public Channel orchestratorChannel() {
    return orchestrator;
  }

  /** Ends all calls and closes the connections. */
  @Override
  public void close() {
    connections.close();
  }

  private static <S extends AbstractStub<S>> S within(S stub, Duration limit) {
    return stub.withDeadlineAfter(limit.toMillis(), TimeUnit.MILLISECONDS);
  }

  private static String orElse(String given, String fallback) {
    return given.isEmpty() ? fallback : given;
  }

  /** Options of a client. */
  public static final class Builder {
    private final String key;
    private String embedder = "127.0.0.1:50051";
    private String retriever = "127.0.0.1:50052";
    private String memory = "127.0.0.1:50053";
    private String orchestrator = "127.0.0.1:50054";
    private Duration timeout = Duration.ofSeconds(30);
    private Duration streamTimeout = Duration.ofMinutes(3);
    private ChannelCredentials credentials = Connections.plaintext();

    private Builder(String key) {
      this.key = Objects.requireNonNull(key, "key");
    }

    /** Where the embedder is, host:port; default 127.0.0.1:50051. */
    public Builder embedder(String target) {
      this.embedder = Objects.requireNonNull(target, "target");
      return this;
    }

    /** Where the retriever is, host:port; default 127.0.0.1:50052. */
    public Builder retriever(String target) {
      this.retriever = Objects.requireNonNull(target, "target");
      return this;
    }

    /** Where the memory service is, host:port; default 127.0.0.1:50053. */
    public Builder memory(String target) {
      this.memory = Objects.requireNonNull(target, "target");
      return this;
    }

    /** Where the orchestrator is, host:port; default 127.0.0.1:50054. */
    public Builder orchestrator(String target) {
      this.orchestrator = Objects.requireNonNull(target, "target");
      return this;
    }

    /** Deadline of calls; default 30 s. */
    public Builder timeout(Duration limit) {
      this.timeout = positive(limit);
      return this;
    }

    /** Deadline of chats, streamed or not; default 3 min. */
    public Builder streamTimeout(Duration limit) {
      this.streamTimeout = positive(limit);
      return this;
    }

    /** Use TLS and trust the system's authorities; the default is plain text. */
    public Builder tls() {
      this.credentials = Connections.tls();
      return this;
    }

    /**
     * Use TLS and trust the authorities in a PEM file, no others.
     *
     * @throws java.io.UncheckedIOException when the file cannot be read
     */
    public Builder tls(Path rootCertificates) {
      this.credentials = Connections.tls(rootCertificates);
      return this;
    }

    /** Makes the client; connections are opened on first use. */
    public NianlunClient build() {
      return new NianlunClient(this);
    }

    private static Duration positive(Duration limit) {
      if (limit.isNegative() || limit.isZero()) {
        throw new IllegalArgumentException("a deadline must be positive, not " + limit);
      }
      return limit;
    }
  }
}
