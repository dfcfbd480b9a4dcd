package io.nianlun.client;

import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.ServiceDescriptor;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.AbstractStub;
import io.grpc.stub.MetadataUtils;
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
import io.nianlun.orchestrator.v1.Completed;
import io.nianlun.orchestrator.v1.OrchestratorServiceGrpc;
import io.nianlun.orchestrator.v1.RunState;
import io.nianlun.orchestrator.v1.StreamChatRequest;
import io.nianlun.orchestrator.v1.StreamChatResponse;
import io.nianlun.retriever.v1.RetrieverServiceGrpc;
import io.nianlun.retriever.v1.SearchRequest;
import io.nianlun.retriever.v1.SearchResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * A small blocking client. It is safe for use by many threads; make one and close it at the end.
 *
 * <p>The methods here cover the common path. For everything else {@link #memory()}, {@link #retriever()} and
 * {@link #orchestrator()} give the generated stubs, with key and deadline set.
 */
public final class NianlunClient implements AutoCloseable {
  private static final int MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  private final Builder options;
  private final List<ManagedChannel> channels = new ArrayList<>();
  private final MemoryServiceGrpc.MemoryServiceBlockingStub memory;
  private final RetrieverServiceGrpc.RetrieverServiceBlockingStub retriever;
  private final OrchestratorServiceGrpc.OrchestratorServiceBlockingStub orchestrator;

  private NianlunClient(Builder options) {
    this.options = options;
    this.memory =
        MemoryServiceGrpc.newBlockingStub(
            channel(options.memoryTarget, MemoryServiceGrpc.getServiceDescriptor()));
    this.retriever =
        RetrieverServiceGrpc.newBlockingStub(
            channel(options.retrieverTarget, RetrieverServiceGrpc.getServiceDescriptor()));
    this.orchestrator =
        OrchestratorServiceGrpc.newBlockingStub(
            channel(options.orchestratorTarget, OrchestratorServiceGrpc.getServiceDescriptor()));
  }

  /** Options of a client; only the key is required. */
  public static Builder builder(String key) {
    return new Builder(key);
  }

  /** Stores one exchange. Visible to {@link #loadMemory} when this returns. */
  public AppendTurnResponse appendTurn(
      String userId, String sessionId, String userText, String assistantText) {
    AppendTurnRequest.Builder request =
        AppendTurnRequest.newBuilder()
            .setRequestId(newRequestId())
            .setUserId(userId)
            .setSessionId(sessionId)
            .addMessages(Message.newBuilder().setRole(Role.ROLE_USER).setText(userText));
    if (!assistantText.isEmpty()) {
      request.addMessages(
          Message.newBuilder().setRole(Role.ROLE_ASSISTANT).setText(assistantText));
    }
    return appendTurn(request.build());
  }

  /** Stores one exchange; the caller's {@code request_id} makes it safe to repeat. */
  public AppendTurnResponse appendTurn(AppendTurnRequest request) {
    return call(() -> memory().appendTurn(request));
  }

  /** Loads what is known about the user for a question, at least as new as {@code position} (may be empty). */
  public LoadMemoryResponse loadMemory(
      String userId, String sessionId, String query, String position) {
    LoadMemoryRequest request =
        LoadMemoryRequest.newBuilder()
            .setUserId(userId)
            .setSessionId(sessionId)
            .setQuery(query)
            .setAtLeast(position)
            .build();
    return call(() -> memory().loadMemory(request));
  }

  /** Ends a session: it is digested and summarised in the background. */
  public EndSessionResponse endSession(String userId, String sessionId) {
    EndSessionRequest request =
        EndSessionRequest.newBuilder()
            .setRequestId(newRequestId())
            .setUserId(userId)
            .setSessionId(sessionId)
            .build();
    return call(() -> memory().endSession(request));
  }

  /** Searches collections. */
  public SearchResponse search(SearchRequest request) {
    return call(() -> retriever().search(request));
  }

  /** Answers a message as one whole. */
  public ChatResponse chat(ChatInput input) {
    ChatRequest request =
        ChatRequest.newBuilder().setInput(input).setRequestId(newRequestId()).build();
    return call(() -> within(orchestrator, options.chatTimeout).chat(request));
  }

  /**
   * Answers a message as events. {@code onEvent} sees each of them in order, on the calling thread; an exception it
   * throws cancels the call.
   *
   * @return the completed answer
   * @throws NianlunException when the call fails
   * @throws IllegalStateException when the run ended without an answer
   */
  public ChatResponse streamChat(ChatInput input, Consumer<ChatEvent> onEvent) {
    StreamChatRequest request =
        StreamChatRequest.newBuilder().setInput(input).setRequestId(newRequestId()).build();
    var context = io.grpc.Context.current().withCancellation();
    var previous = context.attach();
    try {
      return call(
          () -> {
            Iterator<StreamChatResponse> events =
                within(orchestrator, options.chatTimeout).streamChat(request);
            return consume(events, onEvent);
          });
    } finally {
      context.detach(previous);
      context.cancel(null); // Ends the call on the server, too, when onEvent threw.
    }
  }

  private static ChatResponse consume(
      Iterator<StreamChatResponse> events, Consumer<ChatEvent> onEvent) {
    Completed completed = null;
    while (events.hasNext()) {
      ChatEvent event = events.next().getEvent();
      onEvent.accept(event);
      if (event.hasCompleted()) {
        completed = event.getCompleted();
      }
    }
    if (completed == null || completed.getState() != RunState.RUN_STATE_COMPLETED) {
      throw new IllegalStateException("the run ended without an answer: " + completed);
    }
    return completed.getResponse();
  }

  /** The generated stub with key and deadline. */
  public MemoryServiceGrpc.MemoryServiceBlockingStub memory() {
    return within(memory, options.timeout);
  }

  /** The generated stub with key and deadline. */
  public RetrieverServiceGrpc.RetrieverServiceBlockingStub retriever() {
    return within(retriever, options.timeout);
  }

  /** The generated stub with key and deadline. */
  public OrchestratorServiceGrpc.OrchestratorServiceBlockingStub orchestrator() {
    return within(orchestrator, options.timeout);
  }

  /** Ends all calls and closes the connections. */
  @Override
  public void close() {
    for (ManagedChannel channel : channels) {
      channel.shutdownNow();
    }
    try {
      for (ManagedChannel channel : channels) {
        channel.awaitTermination(5, TimeUnit.SECONDS);
      }
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  private static String newRequestId() {
    return UUID.randomUUID().toString();
  }

  private static <S extends AbstractStub<S>> S within(S stub, Duration timeout) {
    return stub.withDeadlineAfter(timeout.toMillis(), TimeUnit.MILLISECONDS);
  }

  private static <T> T call(Supplier<T> rpc) {
    try {
      return rpc.get();
    } catch (StatusRuntimeException failure) {
      throw NianlunException.of(failure);
    }
  }

  private ManagedChannel channel(String target, ServiceDescriptor service) {
    Metadata headers = new Metadata();
    headers.put(AUTHORIZATION, "Bearer " + options.key);
    ManagedChannelBuilder<?> builder =
        ManagedChannelBuilder.forTarget(target)
            .intercept(MetadataUtils.newAttachHeadersInterceptor(headers))
            .defaultLoadBalancingPolicy("round_robin")
            .defaultServiceConfig(RetryPolicies.serviceConfig(service))
            .enableRetry()
            .keepAliveTime(30, TimeUnit.SECONDS)
            .maxInboundMessageSize(MAX_MESSAGE_BYTES);
    if (options.plaintext) {
      builder.usePlaintext();
    }
    ManagedChannel made = builder.build();
    channels.add(made);
    return made;
  }

  /** Options of a client. */
  public static final class Builder {
    private final String key;
    private String memoryTarget = "127.0.0.1:50053";
    private String retrieverTarget = "127.0.0.1:50052";
    private String orchestratorTarget = "127.0.0.1:50054";
    private Duration timeout = Duration.ofSeconds(10);
    private Duration chatTimeout = Duration.ofMinutes(2);
    private boolean plaintext = true;

    private Builder(String key) {
      this.key = Objects.requireNonNull(key, "key");
    }

    /** Where the memory service is; default 127.0.0.1:50053. */
    public Builder memory(String target) {
      this.memoryTarget = target;
      return this;
    }

    /** Where the retriever service is; default 127.0.0.1:50052. */
    public Builder retriever(String target) {
      this.retrieverTarget = target;
      return this;
    }

    /** Where the orchestrator service is; default 127.0.0.1:50054. */
    public Builder orchestrator(String target) {
      this.orchestratorTarget = target;
      return this;
    }

    /** Deadline of every call but chats; default 10 s. */
    public Builder timeout(Duration limit) {
      this.timeout = limit;
      return this;
    }

    /** Deadline of chats; default 2 min. */
    public Builder chatTimeout(Duration limit) {
      this.chatTimeout = limit;
      return this;
    }

    /** Use TLS with the system's trusted certificates; default is plaintext. */
    public Builder tls() {
      this.plaintext = false;
      return this;
    }

    /** Makes the client; connections are opened on first use. */
    public NianlunClient build() {
      return new NianlunClient(this);
    }
  }
}
