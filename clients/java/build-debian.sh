#!/bin/sh
# Builds the client and its example from Debian's packages alone, without Maven and without a network:
#   libgrpc-java libprotobuf-java protobuf-compiler protobuf-compiler-grpc-java-plugin
#   libgeronimo-annotation-1.3-spec-java libnetty-java libperfmark-java libgoogle-gson-java libprotobuf-dev, and a JDK 17
# Usage: build-debian.sh [output folder, default target/debian]
# Afterwards `<output>/run CLASS [ARGUMENT...]` runs a class, for instance io.nianlun.examples.Conversation, and
# `<output>/test` the tests, where the package junit5 is there. Debian's netty speaks TLS with libnetty-tcnative-java
# alone; what is on Maven Central needs nothing.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
protos="$here/../../protos"
out=${1:-"$here/target/debian"}
jars=/usr/share/java

for tool in protoc grpc_java_plugin javac java; do
  command -v "$tool" >/dev/null || { echo "missing: $tool" >&2; exit 3; }
done

# Each jar once: two copies of one class on the path make gRPC load the wrong one.
classpath=
for name in grpc-api grpc-context grpc-core grpc-netty grpc-protobuf grpc-protobuf-lite grpc-stub \
  protobuf guava failureaccess gson perfmark-api opencensus-api geronimo-annotation-1.3-spec \
  netty-buffer netty-codec netty-codec-http netty-codec-http2 netty-codec-socks netty-common \
  netty-handler netty-handler-proxy netty-resolver netty-transport \
  netty-transport-native-unix-common; do
  if [ -e "$jars/$name.jar" ]; then
    classpath="$classpath:$jars/$name.jar"
  elif [ "$name" != failureaccess ]; then # part of guava in some releases
    echo "missing: $jars/$name.jar" >&2
    exit 3
  fi
done
classpath=${classpath#:}
tcnative=$(find /usr/lib -name libnetty-tcnative.so -path '*/jni/*' 2>/dev/null | head -n 1)

# The well-known types: Debian has them in libprotobuf-dev, Python in grpcio-tools; either will do.
include=${PROTOBUF_INCLUDE:-/usr/include}
if [ ! -e "$include/google/protobuf/timestamp.proto" ]; then
  echo "missing: $include/google/protobuf/timestamp.proto (libprotobuf-dev, or set PROTOBUF_INCLUDE)" >&2
  exit 3
fi

rm -rf "$out"
mkdir -p "$out/generated" "$out/classes" "$out/test-classes"

find "$protos/nianlun" -name '*.proto' -exec \
  protoc -I "$protos" -I "$include" \
  --plugin=protoc-gen-grpc-java="$(command -v grpc_java_plugin)" \
  --java_out="$out/generated" --grpc-java_out="$out/generated" {} +

options=-XX:TieredStopAtLevel=1
if [ -n "$tcnative" ] && [ -e "$jars/netty-tcnative.jar" ]; then
  # Netty looks for it under its own name, which is not Debian's; a link will not do.
  mkdir -p "$out/native"
  cp "$tcnative" "$out/native/libnetty_tcnative.so"
  classpath="$classpath:$jars/netty-tcnative.jar"
  options="$options -Djava.library.path=$out/native"
fi

# compile CLASSPATH CLASSES SOURCE_FOLDER...
compile() {
  path=$1 classes=$2
  shift 2
  find "$@" -name '*.java' >"$classes.sources"
  javac -proc:none -nowarn -encoding UTF-8 --release 17 -cp "$path" -d "$classes" @"$classes.sources" \
    2>"$classes.log" || { cat "$classes.log" >&2; exit 1; }
}

# command NAME CLASSPATH ARGUMENTS
command_of() {
  cat >"$out/$1" <<RUN
#!/bin/sh
exec java $options -cp "$2" $3 "\$@"
RUN
  chmod +x "$out/$1"
}

compile "$classpath" "$out/classes" "$out/generated" "$here/src/main/java"
command_of run "$out/classes:$classpath" ""

if [ -e "$jars/junit-platform-console.jar" ]; then
  junit=
  for name in junit-jupiter-api junit-jupiter-engine junit-platform-commons junit-platform-engine \
    junit-platform-launcher junit-platform-console junit-platform-reporting opentest4j apiguardian-api \
    picocli opentest4j-reporting-events opentest4j-reporting-schema; do
    [ ! -e "$jars/$name.jar" ] || junit="$junit:$jars/$name.jar"
  done
  compile "$out/classes:$classpath$junit" "$out/test-classes" "$here/src/test/java"
  command_of test "$out/test-classes:$out/classes:$classpath$junit" \
    "org.junit.platform.console.ConsoleLauncher --scan-class-path $out/test-classes"
fi
echo "$out/run"
