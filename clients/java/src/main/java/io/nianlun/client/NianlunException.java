package io.nianlun.client;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.UnknownFieldSet;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.nianlun.common.v1.ErrorReason;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/** A failed call. Decide by {@link #reason()} or {@link #code()}, never by the message. */
public final class NianlunException extends RuntimeException {
  private static final long serialVersionUID = 1L;
  private static final Metadata.Key<byte[]> DETAILS =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);
  // Field number of google.rpc.Status. It and the messages inside are read by number, so that this client needs no
  // artifact beyond grpc and protobuf.
  private static final int STATUS_DETAILS = 3;
  /** The reasons that the contract calls retryable. */
  private static final Set<ErrorReason> RETRYABLE_REASONS =
      EnumSet.of(
          ErrorReason.ERROR_REASON_FRESHNESS_NOT_MET,
          ErrorReason.ERROR_REASON_OVERLOADED,
          ErrorReason.ERROR_REASON_DATABASE_UNAVAILABLE,
          ErrorReason.ERROR_REASON_DEPENDENCY_UNAVAILABLE,
          ErrorReason.ERROR_REASON_MODEL_UNAVAILABLE,
          ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED);
  // Where no reason is given, gRPC or something on the way has failed the call. Not in this list:
  // RESOURCE_EXHAUSTED, which is then an answer that is too large.
  private static final Set<Status.Code> RETRYABLE_CODES =
      EnumSet.of(Status.Code.UNAVAILABLE, Status.Code.DEADLINE_EXCEEDED);

  private final Status.Code code;
  private final ErrorReason reason;
  private final String requestId;
  private final transient Details details;

  private NianlunException(StatusRuntimeException cause, Details details, String requestId) {
    super(message(cause, details, requestId), cause);
    this.code = cause.getStatus().getCode();
    this.reason = details.reason;
    this.details = details;
    this.requestId = requestId;
  }

  /** A field of the request that was refused, and why. */
  public record FieldViolation(String field, String description) {}

  /** A thing that was not found, or exists already. */
  public record Resource(String type, String name) {}

  /** The gRPC status code. */
  public Status.Code code() {
    return code;
  }

  /**
   * Why it failed; {@code ERROR_REASON_UNSPECIFIED} when the failure did not come from Nianlun, or its reason is newer
   * than this client.
   */
  public ErrorReason reason() {
    return reason;
  }

  /** The variable parts of the reason; see the comments of {@link ErrorReason}. */
  public Map<String, String> metadata() {
    return Map.copyOf(details.metadata);
  }

  /** The refused fields of an INVALID_ARGUMENT. */
  public List<FieldViolation> violations() {
    return List.copyOf(details.violations);
  }

  /** What was not found, or exists already. */
  public Optional<Resource> resource() {
    return Optional.ofNullable(details.resource);
  }

  /** How long the service asks to wait before the next try. */
  public Optional<Duration> retryAfter() {
    return Optional.ofNullable(details.retryAfter);
  }

  /** What to quote in a report, and to send again where a write is repeated by hand. */
  public String requestId() {
    return requestId;
  }

  /**
   * Whether the same request, with the same {@code request_id}, may succeed later. Decided by the reason; by the code
   * where the failure did not come from Nianlun, or its reason is newer than this client.
   */
  public boolean retryable() {
    return reason == ErrorReason.ERROR_REASON_UNSPECIFIED
        ? RETRYABLE_CODES.contains(code)
        : RETRYABLE_REASONS.contains(reason);
  }

  /** The typed form of what gRPC throws. */
  public static NianlunException of(StatusRuntimeException cause) {
    Metadata trailers = cause.getTrailers() == null ? new Metadata() : cause.getTrailers();
    Details details = new Details();
    byte[] packed = trailers.get(DETAILS);
    if (packed != null) {
      try {
        for (ByteString detail : fields(ByteString.copyFrom(packed), STATUS_DETAILS)) {
          details.read(Any.parseFrom(detail));
        }
      } catch (InvalidProtocolBufferException unreadable) {
        cause.addSuppressed(unreadable); // Code and message must not be lost with the details.
      }
    }
    String requestId = trailers.get(CallDefaults.REQUEST_ID);
    return new NianlunException(cause, details, requestId == null ? "" : requestId);
  }

  private static String message(StatusRuntimeException cause, Details details, String requestId) {
    StringBuilder text = new StringBuilder();
    text.append(cause.getStatus().getCode());
    String said = cause.getStatus().getDescription();
    if (said != null) {
      text.append(": ").append(said.endsWith(".") ? said.substring(0, said.length() - 1) : said);
    }
    if (details.resource != null) {
      text.append("; ").append(details.resource.type).append(' ').append(details.resource.name);
    }
    for (FieldViolation violation : details.violations) {
      text.append("; ").append(violation.field).append(": ").append(violation.description);
    }
    return requestId.isEmpty() ? text.toString() : text + "; request id " + requestId;
  }

  private static List<ByteString> fields(ByteString message, int number)
      throws InvalidProtocolBufferException {
    return UnknownFieldSet.parseFrom(message).getField(number).getLengthDelimitedList();
  }

  private static String text(ByteString message, int number) throws InvalidProtocolBufferException {
    List<ByteString> values = fields(message, number);
    return values.isEmpty() ? "" : values.get(0).toStringUtf8();
  }

  /** The details of google.rpc.Status, as far as they have been read. */
  private static final class Details {
    private ErrorReason reason = ErrorReason.ERROR_REASON_UNSPECIFIED;
    private final Map<String, String> metadata = new LinkedHashMap<>();
    private final List<FieldViolation> violations = new ArrayList<>();
    private Resource resource;
    private Duration retryAfter;

    void read(Any detail) throws InvalidProtocolBufferException {
      String url = detail.getTypeUrl();
      ByteString value = detail.getValue();
      switch (url.substring(url.lastIndexOf('/') + 1)) {
        case "google.rpc.ErrorInfo" -> {
          reason = reasonOf(text(value, 1));
          for (ByteString entry : fields(value, 3)) {
            metadata.put(text(entry, 1), text(entry, 2));
          }
        }
        case "google.rpc.BadRequest" -> {
          for (ByteString violation : fields(value, 1)) {
            violations.add(new FieldViolation(text(violation, 1), text(violation, 2)));
          }
        }
        case "google.rpc.RetryInfo" -> {
          for (ByteString delay : fields(value, 1)) {
            var parsed = com.google.protobuf.Duration.parseFrom(delay);
            retryAfter = Duration.ofSeconds(parsed.getSeconds(), parsed.getNanos());
          }
        }
        case "google.rpc.ResourceInfo" -> resource = new Resource(text(value, 1), text(value, 2));
        default -> {
          // A kind of detail that is newer than this client.
        }
      }
    }

    private static ErrorReason reasonOf(String name) {
      var value = ErrorReason.getDescriptor().findValueByName("ERROR_REASON_" + name);
      return value == null ? ErrorReason.ERROR_REASON_UNSPECIFIED : ErrorReason.valueOf(value);
    }
  }
}
