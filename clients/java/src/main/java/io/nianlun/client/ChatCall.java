package io.nianlun.client;

import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.nianlun.orchestrator.v1.ChatEvent;
import io.nianlun.orchestrator.v1.ChatResponse;
import io.nianlun.orchestrator.v1.RunState;
import io.nianlun.orchestrator.v1.StreamChatRequest;
import io.nianlun.orchestrator.v1.StreamChatResponse;
import java.util.concurrent.CompletableFuture;

/** A chat under way whose events a {@link ChatListener} hears. */
public final class ChatCall implements AutoCloseable {
  private final CompletableFuture<ChatResponse> answer = new CompletableFuture<>();
  private final Observer observer;

  ChatCall(ChatListener listener) {
    this.observer = new Observer(listener);
  }

  /**
   * The answer. It fails with a {@link NianlunException}, or with a {@link RunFailedException}, as what
   * {@link ChatListener#onFailure} hears.
   */
  public CompletableFuture<ChatResponse> answer() {
    return answer;
  }

  /** Ends the run on the service; the listener then hears of a failure, CANCELLED. Nothing after the end. */
  public void cancel() {
    observer.call.cancel("cancelled by the caller", null);
  }

  /** The same as {@link #cancel()}. */
  @Override
  public void close() {
    cancel();
  }

  ClientResponseObserver<StreamChatRequest, StreamChatResponse> observer() {
    return observer;
  }

  private final class Observer
      implements ClientResponseObserver<StreamChatRequest, StreamChatResponse> {
    private final ChatListener listener;
    private ClientCallStreamObserver<StreamChatRequest> call;
    private ChatEvent last = ChatEvent.getDefaultInstance();

    Observer(ChatListener listener) {
      this.listener = listener;
    }

    @Override
    public void beforeStart(ClientCallStreamObserver<StreamChatRequest> started) {
      this.call = started;
    }

    @Override
    public void onNext(StreamChatResponse message) {
      last = message.getEvent();
      listener.onEvent(last);
    }

    @Override
    public void onError(Throwable failure) {
      StatusRuntimeException error =
          failure instanceof StatusRuntimeException known
              ? known
              : Status.fromThrowable(failure).withCause(failure).asRuntimeException();
      fail(NianlunException.of(error));
    }

    @Override
    public void onCompleted() {
      var completed = last.getCompleted();
      if (completed.getState() != RunState.RUN_STATE_COMPLETED) {
        fail(new RunFailedException(last.getRunId(), completed.getError()));
        return;
      }
      answer.complete(completed.getResponse());
      listener.onAnswer(completed.getResponse());
    }

    private void fail(RuntimeException failure) {
      answer.completeExceptionally(failure);
      listener.onFailure(failure);
    }
  }
}
