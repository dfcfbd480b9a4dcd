package io.nianlun.client;

import com.google.protobuf.DescriptorProtos.MethodOptions.IdempotencyLevel;
import com.google.protobuf.Descriptors.MethodDescriptor;
import io.grpc.ServiceDescriptor;
import io.grpc.protobuf.ProtoServiceDescriptorSupplier;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * What follows from the contract: only methods whose {@code idempotency_level} allows it are sent again, and only when
 * the server is unavailable. A repeated write carries the same {@code request_id} and therefore takes effect once.
 */
final class RetryPolicies {
  // The second try comes soon, the last after about a second: what is meant is a connection that broke. A service
  // that restarts is waited for, see CallDefaults.
  private static final Map<String, Object> POLICY =
      Map.of(
          "maxAttempts", 4.0,
          "initialBackoff", "0.1s",
          "maxBackoff", "2s",
          "backoffMultiplier", 2.5,
          "retryableStatusCodes", List.of("UNAVAILABLE"));

  private RetryPolicies() {}

  /** The gRPC service config of a service. It sets no timeout: deadlines are the caller's. */
  static Map<String, Object> serviceConfig(ServiceDescriptor service) {
    List<Object> names = new ArrayList<>();
    for (MethodDescriptor method : methods(service)) {
      if (isRepeatable(method)) {
        names.add(Map.of("service", service.getName(), "method", method.getName()));
      }
    }
    return Map.of("methodConfig", List.of(Map.of("name", names, "retryPolicy", POLICY)));
  }

  /** The full names ({@code package.Service/Method}) of the methods that may be sent again. */
  static Set<String> repeatable(ServiceDescriptor service) {
    Set<String> names = new LinkedHashSet<>();
    for (MethodDescriptor method : methods(service)) {
      if (isRepeatable(method)) {
        names.add(service.getName() + "/" + method.getName());
      }
    }
    return names;
  }

  private static List<MethodDescriptor> methods(ServiceDescriptor service) {
    var schema = (ProtoServiceDescriptorSupplier) service.getSchemaDescriptor();
    return schema.getServiceDescriptor().getMethods();
  }

  private static boolean isRepeatable(MethodDescriptor method) {
    return method.getOptions().getIdempotencyLevel() != IdempotencyLevel.IDEMPOTENCY_UNKNOWN;
  }
}
