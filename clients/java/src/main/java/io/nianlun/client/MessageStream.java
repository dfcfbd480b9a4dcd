package io.nianlun.client;

import io.grpc.Context;
import io.grpc.StatusRuntimeException;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.function.Supplier;

/**
 * The messages of a streaming call, one after another; the next one is waited for. Closing it before the end cancels
 * the call, and ends the work of the service. For one thread at a time.
 *
 * @param <T> the type of the messages
 */
public class MessageStream<T> implements Iterator<T>, AutoCloseable {
  private final Context.CancellableContext context = Context.current().withCancellation();
  private final Iterator<T> messages;

  MessageStream(Supplier<Iterator<T>> rpc) {
    Context previous = context.attach();
    try {
      messages = NianlunClient.call(rpc);
    } finally {
      context.detach(previous);
    }
  }

  /**
   * Waits for the next message.
   *
   * @return false at the end of the stream
   * @throws NianlunException when the call failed
   */
  @Override
  public boolean hasNext() {
    boolean more = false;
    try {
      more = messages.hasNext();
    } catch (StatusRuntimeException failure) {
      throw NianlunException.of(failure);
    } finally {
      if (!more) {
        close();
      }
    }
    return more;
  }

  @Override
  public T next() {
    if (!hasNext()) {
      throw new NoSuchElementException("the stream has ended");
    }
    return messages.next();
  }

  /** Cancels what is under way; without effect after the end. */
  @Override
  public void close() {
    context.cancel(null);
  }
}
