package io.nianlun.client;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.UnknownFieldSet;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.nianlun.common.v1.ErrorReason;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A failed call: the status code, and the published reason with whatever varies in its metadata. */
public final class NianlunException extends RuntimeException {
  private static final long serialVersionUID = 1L;
  private static final Metadata.Key<byte[]> DETAILS =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);
  // Field numbers of google.rpc.Status and google.rpc.ErrorInfo. They are read by number so that
  // this client needs no artifact beyond grpc and protobuf.
  private static final int STATUS_DETAILS = 3;
  private static final int INFO_REASON = 1;
  private static final int INFO_METADATA = 3;

  private final Status.Code code;
  private final ErrorReason reason;
  private final transient Map<String, String> metadata;

  private NianlunException(
      StatusRuntimeException cause, ErrorReason reason, Map<String, String> metadata) {
    super(cause.getStatus().getCode() + " " + cause.getStatus().getDescription(), cause);
    this.code = cause.getStatus().getCode();
    this.reason = reason;
    this.metadata = Collections.unmodifiableMap(metadata);
  }

  /** The gRPC status code. */
  public Status.Code code() {
    return code;
  }

  /** Why it failed; {@code ERROR_REASON_UNSPECIFIED} when the failure did not come from Nianlun. */
  public ErrorReason reason() {
    return reason;
  }

  /** The variable parts of the reason; see the comments of {@link ErrorReason}. */
  public Map<String, String> metadata() {
    return metadata;
  }

  static NianlunException of(StatusRuntimeException cause) {
    Metadata trailers = cause.getTrailers();
    byte[] details = trailers == null ? null : trailers.get(DETAILS);
    if (details != null) {
      try {
        for (ByteString detail : fields(ByteString.copyFrom(details), STATUS_DETAILS)) {
          Any any = Any.parseFrom(detail);
          if (any.getTypeUrl().endsWith("/google.rpc.ErrorInfo")) {
            return new NianlunException(cause, reasonOf(any.getValue()), metadataOf(any.getValue()));
          }
        }
      } catch (InvalidProtocolBufferException unreadable) {
        cause.addSuppressed(unreadable);
      }
    }
    return new NianlunException(cause, ErrorReason.ERROR_REASON_UNSPECIFIED, Map.of());
  }

  private static List<ByteString> fields(ByteString message, int number)
      throws InvalidProtocolBufferException {
    return UnknownFieldSet.parseFrom(message).getField(number).getLengthDelimitedList();
  }

  private static ErrorReason reasonOf(ByteString info) throws InvalidProtocolBufferException {
    for (ByteString name : fields(info, INFO_REASON)) {
      var value =
          ErrorReason.getDescriptor().findValueByName("ERROR_REASON_" + name.toStringUtf8());
      if (value != null) {
        return ErrorReason.valueOf(value);
      }
    }
    return ErrorReason.ERROR_REASON_UNSPECIFIED; // A reason that is newer than this client.
  }

  private static Map<String, String> metadataOf(ByteString info)
      throws InvalidProtocolBufferException {
    Map<String, String> found = new LinkedHashMap<>();
    for (ByteString entry : fields(info, INFO_METADATA)) {
      found.put(first(fields(entry, 1)), first(fields(entry, 2)));
    }
    return found;
  }

  private static String first(List<ByteString> values) {
    return values.isEmpty() ? "" : values.get(0).toStringUtf8();
  }
}
