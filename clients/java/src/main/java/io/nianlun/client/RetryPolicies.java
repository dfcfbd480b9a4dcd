package io.nianlun.client;

import com.google.protobuf.DescriptorProtos.MethodOptions.IdempotencyLevel;
import com.google.protobuf.Descriptors.MethodDescriptor;
import io.grpc.ServiceDescriptor;
import io.grpc.protobuf.ProtoServiceDescriptorSupplier;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Retry policies that follow from the contract: only methods whose {@code idempotency_level} allows it, and only when
 * the server is unavailable. A repeated write carries the same {@code request_id} and therefore takes effect once.
 */
final class RetryPolicies {
  private static final Map<String, Object> POLICY =
      Map.of(
          "maxAttempts", 4.0,
          "initialBackoff", "0.1s",
          "maxBackoff", "2s",
          "backoffMultiplier", 2.0,
          "retryableStatusCodes", List.of("UNAVAILABLE"));

  private RetryPolicies() {}

  /** The gRPC service config for these services. */
  static Map<String, Object> serviceConfig(ServiceDescriptor... services) {
    List<Object> names = new ArrayList<>();
    for (ServiceDescriptor service : services) {
      var schema = (ProtoServiceDescriptorSupplier) service.getSchemaDescriptor();
      for (MethodDescriptor method : schema.getServiceDescriptor().getMethods()) {
        boolean repeatable =
            method.getOptions().getIdempotencyLevel() != IdempotencyLevel.IDEMPOTENCY_UNKNOWN;
        if (repeatable && !method.isServerStreaming() && !method.isClientStreaming()) {
          names.add(Map.of("service", service.getName(), "method", method.getName()));
        }
      }
    }
    return Map.of("methodConfig", List.of(Map.of("name", names, "retryPolicy", POLICY)));
  }
}
