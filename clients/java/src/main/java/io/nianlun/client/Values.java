package io.nianlun.client;

import com.google.protobuf.Timestamp;
import io.nianlun.common.v1.StringList;
import io.nianlun.common.v1.Value;
import java.time.Instant;
import java.util.List;
import java.util.UUID;

/** Between plain Java values and the messages of the contracts. */
public final class Values {
  private Values() {}

  /** A fresh request id. Send the same one again to repeat a write without a second effect. */
  public static String newRequestId() {
    return UUID.randomUUID().toString();
  }

  /** The protobuf form of an instant. */
  public static Timestamp timestamp(Instant instant) {
    return Timestamp.newBuilder()
        .setSeconds(instant.getEpochSecond())
        .setNanos(instant.getNano())
        .build();
  }

  /** The instant that a protobuf timestamp stands for. */
  public static Instant instant(Timestamp timestamp) {
    return Instant.ofEpochSecond(timestamp.getSeconds(), timestamp.getNanos());
  }

  /** A text as a metadata value. */
  public static Value value(String text) {
    return Value.newBuilder().setStringValue(text).build();
  }

  /** An integer as a metadata value; it stays one. */
  public static Value value(long integer) {
    return Value.newBuilder().setIntValue(integer).build();
  }

  /**
   * A double as a metadata value.
   *
   * @throws IllegalArgumentException when it is NaN or infinite
   */
  public static Value value(double number) {
    if (!Double.isFinite(number)) {
      throw new IllegalArgumentException(number + " cannot be a metadata value");
    }
    return Value.newBuilder().setDoubleValue(number).build();
  }

  /** A truth value as a metadata value. */
  public static Value value(boolean truth) {
    return Value.newBuilder().setBoolValue(truth).build();
  }

  /** An instant as a metadata value. */
  public static Value value(Instant instant) {
    return Value.newBuilder().setTimestampValue(timestamp(instant)).build();
  }

  /** A list of texts as a metadata value. */
  public static Value value(List<String> texts) {
    return Value.newBuilder().setStringList(StringList.newBuilder().addAllValues(texts)).build();
  }
}
