package io.nianlun.client;

import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ServiceDescriptor;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** The channels of one client. */
final class Connections implements AutoCloseable {
  // A little more than a server sends: its limit is on the message, ours on the frame.
  private static final int MAX_MESSAGE_BYTES = 16 * 1024 * 1024 + 64 * 1024;

  private final List<ManagedChannel> channels = new ArrayList<>();
  private final ChannelCredentials credentials;
  private final String key;

  Connections(ChannelCredentials credentials, String key) {
    this.credentials = credentials;
    this.key = key;
  }

  static ChannelCredentials plaintext() {
    return InsecureChannelCredentials.create();
  }

  /** TLS that trusts the system's authorities. */
  static ChannelCredentials tls() {
    return TlsChannelCredentials.create();
  }

  /** TLS that trusts the authorities in a PEM file, and no other. */
  static ChannelCredentials tls(Path rootCertificates) {
    try {
      return TlsChannelCredentials.newBuilder().trustManager(rootCertificates.toFile()).build();
    } catch (IOException unreadable) {
      throw new UncheckedIOException(unreadable);
    }
  }

  /** A channel to a service; it connects when it is first used. */
  Channel open(String target, ServiceDescriptor service) {
    ManagedChannel channel =
        Grpc.newChannelBuilder(target, credentials)
            .defaultLoadBalancingPolicy("round_robin")
            .defaultServiceConfig(RetryPolicies.serviceConfig(service))
            .disableServiceConfigLookUp() // Retries come from the contract, not from a name server.
            .enableRetry()
            .keepAliveTime(30, TimeUnit.SECONDS)
            .keepAliveTimeout(10, TimeUnit.SECONDS)
            .keepAliveWithoutCalls(true)
            .maxInboundMessageSize(MAX_MESSAGE_BYTES)
            .build();
    channels.add(channel);
    return ClientInterceptors.intercept(
        channel, new CallDefaults(channel, RetryPolicies.repeatable(service), key));
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
}
