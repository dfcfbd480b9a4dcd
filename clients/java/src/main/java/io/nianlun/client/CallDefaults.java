package io.nianlun.client;

import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ConnectivityState;
import io.grpc.ForwardingClientCall;
import io.grpc.ForwardingClientCallListener;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;

/**
 * What every call over a channel carries: the key, and a request id, in the request too where it has the field and none
 * was given. Calls that may be repeated wait, until their deadline, for a service that was there before: it restarts.
 * One that was never reached fails at once: its address is wrong, or it is down.
 */
final class CallDefaults implements ClientInterceptor {
  static final Metadata.Key<String> REQUEST_ID =
      Metadata.Key.of("x-request-id", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Pattern PRINTABLE = Pattern.compile("[\\x20-\\x7e]+");
  private static final long RECONNECT_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

  private final ManagedChannel channel;
  private final Set<String> repeatable;
  private final String key;
  private final AtomicLong nextReconnect = new AtomicLong(System.nanoTime());
  private volatile boolean reached;

  CallDefaults(ManagedChannel channel, Set<String> repeatable, String key) {
    this.channel = channel;
    this.repeatable = repeatable;
    this.key = key;
  }

  @Override
  public <Q, A> ClientCall<Q, A> interceptCall(
      MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
    CallOptions chosen = options;
    if (reached && repeatable.contains(method.getFullMethodName())) {
      chosen = options.withWaitForReady();
      reconnectSoon();
    }
    return new Call<>(next.newCall(method, chosen), method.getType().clientSendsOneMessage());
  }

  /** By itself gRPC waits up to two minutes between attempts to connect, long after the service has come back. */
  private void reconnectSoon() {
    if (channel.getState(false) != ConnectivityState.TRANSIENT_FAILURE) {
      return;
    }
    long due = nextReconnect.get();
    long now = System.nanoTime();
    if (now - due >= 0 && nextReconnect.compareAndSet(due, now + RECONNECT_NANOS)) {
      channel.resetConnectBackoff();
    }
  }

  private static FieldDescriptor requestIdField(Message message) {
    return message.getDescriptorForType().findFieldByName("request_id");
  }

  /** Starts when the request is known, so that the header can carry the id that stands in it. */
  private final class Call<Q, A> extends ForwardingClientCall.SimpleForwardingClientCall<Q, A> {
    private final boolean oneRequest;
    private Listener<A> listener;
    private Metadata headers;
    private boolean begun;
    private int requested;

    Call(ClientCall<Q, A> call, boolean oneRequest) {
      super(call);
      this.oneRequest = oneRequest;
    }

    @Override
    public void start(Listener<A> responses, Metadata metadata) {
      this.listener = responses;
      this.headers = metadata;
      if (!oneRequest) {
        begin(Values.newRequestId());
      }
    }

    @Override
    public void request(int count) {
      if (begun) {
        super.request(count);
      } else {
        requested += count;
      }
    }

    @Override
    @SuppressWarnings("unchecked") // The builder of a message builds a message of the same type.
    public void sendMessage(Q request) {
      Q sent = request;
      if (oneRequest && request instanceof Message message) {
        FieldDescriptor field = requestIdField(message);
        String id = field == null ? "" : (String) message.getField(field);
        if (id.isEmpty()) {
          id = Values.newRequestId();
          if (field != null) {
            sent = (Q) message.toBuilder().setField(field, id).build();
          }
        }
        begin(id);
      }
      super.sendMessage(sent);
    }

    @Override
    public void cancel(String message, Throwable cause) {
      if (!begun && listener != null) {
        begin(Values.newRequestId());
      }
      super.cancel(message, cause);
    }

    private void begin(String requestId) {
      begun = true;
      if (!key.isEmpty()) {
        headers.put(AUTHORIZATION, "Bearer " + key);
      }
      if (!headers.containsKey(REQUEST_ID) && PRINTABLE.matcher(requestId).matches()) {
        headers.put(REQUEST_ID, requestId);
      }
      super.start(
          new ForwardingClientCallListener.SimpleForwardingClientCallListener<A>(listener) {
            @Override
            public void onHeaders(Metadata received) {
              reached = true;
              super.onHeaders(received);
            }

            @Override
            public void onClose(Status status, Metadata trailers) {
              // Who was not reached has repeated no id, just where a write may have to be repeated by hand.
              if (!trailers.containsKey(REQUEST_ID) && headers.containsKey(REQUEST_ID)) {
                trailers.put(REQUEST_ID, headers.get(REQUEST_ID));
              }
              super.onClose(status, trailers);
            }
          },
          headers);
      if (requested > 0) {
        super.request(requested);
      }
    }
  }
}
