package io.nianlun.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.Message;
import com.google.protobuf.UnknownFieldSet;
import io.grpc.Metadata;
import io.grpc.Status;
import io.nianlun.common.v1.ErrorReason;
import io.nianlun.common.v1.Job;
import io.nianlun.memory.v1.ListJobsResponse;
import io.nianlun.memory.v1.LoadMemoryResponse;
import io.nianlun.memory.v1.MemoryServiceGrpc;
import io.nianlun.memory.v1.RefreshSummaryResponse;
import io.nianlun.orchestrator.v1.ChatResponse;
import io.nianlun.retriever.v1.StartReembedResponse;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;

/** What needs no service: values, retries, and the reading of errors. */
class ContractTest {
  private static final Metadata.Key<byte[]> DETAILS =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

  @Test
  void retriesFollowFromTheContract() {
    var repeatable = RetryPolicies.repeatable(MemoryServiceGrpc.getServiceDescriptor());
    assertTrue(repeatable.contains("nianlun.memory.v1.MemoryService/AppendTurn"));
    assertTrue(repeatable.contains("nianlun.memory.v1.MemoryService/LoadMemory"));
    var config = RetryPolicies.serviceConfig(MemoryServiceGrpc.getServiceDescriptor());
    var method = (Map<?, ?>) ((List<?>) config.get("methodConfig")).get(0);
    assertEquals(repeatable.size(), ((List<?>) method.get("name")).size());
    var policy = (Map<?, ?>) method.get("retryPolicy");
    assertEquals(List.of("UNAVAILABLE"), policy.get("retryableStatusCodes"));
    assertFalse(method.containsKey("timeout"));
  }

  @Test
  void anErrorBringsAllThatTheServiceSaid() {
    ByteString entry = message(1, "kind", 2, "会话");
    ByteString info = message(1, "NOT_FOUND", 2, "nianlun.io", 3, entry);
    ByteString violation = message(1, "session_id", 2, "unknown");
    ByteString delay =
        com.google.protobuf.Duration.newBuilder()
            .setSeconds(1)
            .setNanos(500_000_000)
            .build()
            .toByteString();
    Metadata trailers = new Metadata();
    trailers.put(CallDefaults.REQUEST_ID, "r-1");
    ByteString status =
        message(
            3, any("google.rpc.ErrorInfo", info),
            3, any("google.rpc.BadRequest", message(1, violation)),
            3, any("google.rpc.RetryInfo", message(1, delay)),
            3, any("google.rpc.ResourceInfo", message(1, "session", 2, "s")),
            3, any("example.Newer", message(1, "?")));
    trailers.put(DETAILS, status.toByteArray());
    var error =
        NianlunException.of(
            Status.NOT_FOUND.withDescription("no such session.").asRuntimeException(trailers));
    assertEquals(ErrorReason.ERROR_REASON_NOT_FOUND, error.reason());
    assertEquals(Map.of("kind", "会话"), error.metadata());
    assertEquals(
        List.of(new NianlunException.FieldViolation("session_id", "unknown")), error.violations());
    assertEquals(Optional.of(new NianlunException.Resource("session", "s")), error.resource());
    assertEquals(Optional.of(Duration.ofMillis(1500)), error.retryAfter());
    assertEquals("r-1", error.requestId());
    assertFalse(error.retryable());
    assertEquals(
        "NOT_FOUND: no such session; session s; session_id: unknown; request id r-1",
        error.getMessage());
  }

  @Test
  void whetherACallMaySucceedLaterIsAMatterOfItsReason() {
    assertTrue(retryable(Status.RESOURCE_EXHAUSTED, "OVERLOADED"));
    assertFalse(retryable(Status.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE"));
    assertFalse(retryable(Status.RESOURCE_EXHAUSTED, "BUDGET_EXHAUSTED"));
    assertFalse(retryable(Status.ABORTED, "ETAG_MISMATCH"));
    assertTrue(retryable(Status.FAILED_PRECONDITION, "FRESHNESS_NOT_MET"));
    assertFalse(retryable(Status.FAILED_PRECONDITION, "FAILED_PRECONDITION"));
    // Nothing of ours: a lost connection, a deadline of the client, an answer too large for it.
    assertTrue(NianlunException.of(Status.UNAVAILABLE.asRuntimeException()).retryable());
    assertTrue(NianlunException.of(Status.DEADLINE_EXCEEDED.asRuntimeException()).retryable());
    assertFalse(NianlunException.of(Status.RESOURCE_EXHAUSTED.asRuntimeException()).retryable());
  }

  private static boolean retryable(Status status, String reason) {
    Metadata trailers = new Metadata();
    ByteString info = message(1, reason, 2, "nianlun.io");
    trailers.put(DETAILS, message(3, any("google.rpc.ErrorInfo", info)).toByteArray());
    return NianlunException.of(status.asRuntimeException(trailers)).retryable();
  }

  @Test
  void detailsThatCannotBeReadDoNotHideTheFailure() {
    Metadata trailers = new Metadata();
    trailers.put(DETAILS, new byte[] {0x1a, (byte) 0xff, (byte) 0xff});
    var error = NianlunException.of(Status.UNAVAILABLE.asRuntimeException(trailers));
    assertEquals(Status.Code.UNAVAILABLE, error.code());
    assertEquals(ErrorReason.ERROR_REASON_UNSPECIFIED, error.reason());
    assertEquals("UNAVAILABLE", error.getMessage());
    assertTrue(error.retryable());
    assertEquals(1, error.getCause().getSuppressed().length);
  }

  @Test
  void anyAnswerWithAJobCanBeWaitedFor() {
    Job job = Job.newBuilder().setJobId("j").setKind("reembed").build();
    var started = StartReembedResponse.newBuilder().setJob(job).build();
    var refreshed = RefreshSummaryResponse.newBuilder().setJob(job).build();
    assertEquals(job, Jobs.of(started));
    assertTrue(Jobs.ofRetriever(started));
    assertEquals(job, Jobs.of(refreshed));
    assertFalse(Jobs.ofRetriever(refreshed));
    for (Message answer :
        List.of(
            RefreshSummaryResponse.getDefaultInstance(),
            ListJobsResponse.getDefaultInstance(),
            LoadMemoryResponse.getDefaultInstance())) {
      assertThrows(IllegalArgumentException.class, () -> Jobs.of(answer));
    }
    assertThrows(
        IllegalArgumentException.class, () -> Jobs.ofRetriever(ChatResponse.getDefaultInstance()));
  }

  @Test
  void valuesKeepTheirKinds() {
    assertEquals(9_007_199_254_740_993L, Values.value(9_007_199_254_740_993L).getIntValue());
    assertEquals(0.5, Values.value(0.5).getDoubleValue());
    assertTrue(Values.value(true).getBoolValue());
    assertEquals("年轮", Values.value("年轮").getStringValue());
    var names = Values.value(List.of("a", "b")).getStringList().getValuesList();
    assertEquals(List.of("a", "b"), List.copyOf(names));
    assertThrows(IllegalArgumentException.class, () -> Values.value(Double.NaN));
    for (String text : List.of("2026-05-04T03:02:01.123Z", "1931-01-01T00:00:00.000000001Z")) {
      Instant instant = Instant.parse(text);
      assertEquals(instant, Values.instant(Values.timestamp(instant)));
    }
  }

  private static Any any(String type, ByteString value) {
    return Any.newBuilder().setTypeUrl("type.googleapis.com/" + type).setValue(value).build();
  }

  /** A message of length-delimited fields: number, value, number, value, ... */
  private static ByteString message(Object... parts) {
    UnknownFieldSet.Builder built = UnknownFieldSet.newBuilder();
    for (int i = 0; i < parts.length; i += 2) {
      ByteString value;
      if (parts[i + 1] instanceof ByteString bytes) {
        value = bytes;
      } else if (parts[i + 1] instanceof Any any) {
        value = any.toByteString();
      } else {
        value = ByteString.copyFromUtf8((String) parts[i + 1]);
      }
      var field = UnknownFieldSet.Field.newBuilder().addLengthDelimited(value).build();
      built.mergeField((Integer) parts[i], field);
    }
    return built.build().toByteString();
  }
}
