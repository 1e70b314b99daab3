# shellcheck shell=bash
# Part of scripts/kafka: brokers from Apache Kafka's Maven artifacts. Sourced, never run by itself;
# dir, mode, nodes, port, heap, cluster_id and the options are scripts/kafka's.
#
# shellcheck disable=SC2030,SC2031 # the training run sets a cluster up in a subshell, on purpose
# shellcheck disable=SC2034,SC2154 # variables of scripts/kafka

readonly LOG4J_VERSION=2.25.3 # the binding of slf4j 1, the API that Kafka brings

# ---- the artifacts ----------------------------------------------------------------------------

find_java() {
  java=${JAVA_HOME:+$JAVA_HOME/bin/java}
  [[ -n $java && -x $java ]] || java=$(command -v java) ||
    die "there is no Java: run scripts/setup --java (the Maven artifacts need Java 17 or newer)"
  java=$(realpath -- "$java")
  # Shared archive of Kafka's classes for this very JVM: half of the start-up time.
  archive=$artifacts/classes-$(stat -c '%n %s %Y' -- "$java" | cksum | cut -d ' ' -f 1).jsa
}

fetch_artifacts() {
  find_java
  [[ -d $artifacts/libs && -e $archive ]] && return
  mkdir -p -- "$cache"
  (
    flock -w 900 8 || die "another fetch holds $cache/kafka.lock"
    rm -rf -- "$cache/kafka-train."*
    [[ -d $artifacts/libs ]] || fetch_jars
    [[ -e $archive ]] || train_archive
  ) 8>"$cache/kafka.lock"
}

fetch_jars() {
  local new=$artifacts.new
  command -v mvn >/dev/null || die "there is no Maven: run scripts/setup --java"
  local major
  major=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
  ((${major:-0} >= 17)) ||
    die "$java is Java ${major:-?}, Kafka needs 17 or newer: run scripts/setup --java"
  say "fetching Apache Kafka $KAFKA_VERSION with Maven (54 MB, once)"
  rm -rf -- "$new"
  mkdir -p -- "$new"
  cat >"$new/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>streaming-hub</groupId>
  <artifactId>kafka-broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>$KAFKA_VERSION</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>$KAFKA_VERSION</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>$LOG4J_VERSION</version>
    </dependency>
  </dependencies>
</project>
POM
  # -C: a download whose checksum differs is an error.
  if ! (cd -- "$new" && mvn -q -B -C \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory=libs) >"$new/maven.log" 2>&1 8>&-; then
    tail -n 15 -- "$new/maven.log" >&2
    die "Maven could not fetch Apache Kafka $KAFKA_VERSION (is its repository reachable?)"
  fi
  [[ -f $new/libs/kafka_2.13-$KAFKA_VERSION.jar && -f $new/libs/kafka-tools-$KAFKA_VERSION.jar ]] ||
    die "Maven left no Kafka in $new/libs"
  rm -rf -- "$artifacts"
  mv -- "$new" "$artifacts"
}

# Runs a broker of its own once and lets the JVM write the archive as it ends. Where that fails an
# empty file says so, and brokers start without.
train_archive() {
  local work
  say "preparing the brokers' class archive (once)"
  work=$(mktemp -d -- "$cache/kafka-train.XXXXXX")
  if ! (
    dir=$work mode=maven nodes=1 heap=512m node='' kill_hard='' purge=''
    cluster_id=AAAAAAAAAAAAAAAAAAAAAA
    for port in $(shuf -i 10000-15999 -n 20) 0; do
      listens "$port" || listens $((port + 1)) || break
    done
    trap 'kill_hard=1 && stop_nodes 1; exit 1' INT TERM
    extra_jvm=("-XX:ArchiveClassesAtExit=$work/classes.jsa")
    format_node 1 && launch_node 1 && wait_for_nodes 1
    status=$?
    stop_nodes 1 && exit "$status"
  ) >"$work/train.log" 2>&1 || ! mv -- "$work/classes.jsa" "$archive"; then
    say "no class archive, brokers will start slower: $(tail -n 1 -- "$work/train.log")"
    : >"$archive"
  fi
  rm -rf -- "$work"
}

# ---- nodes from the Maven artifacts -----------------------------------------------------------

write_properties() {
  local i voters='' copies=$nodes min_isr=$((nodes / 2 + 1)) own
  for ((i = 1; i <= nodes; i++)); do voters+=,$i@127.0.0.1:$(($(client_port "$i") + 1)); done
  own=$(client_port "$1")
  # Paths are relative to the node's directory: a properties file takes neither commas nor
  # backslashes nor letters outside Latin-1 as they are.
  cat >"$dir/node-$1/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=$1
controller.quorum.voters=${voters#,}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$own,CONTROLLER://127.0.0.1:$((own + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$own
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=data
auto.create.topics.enable=false
default.replication.factor=$copies
min.insync.replicas=$min_isr
offsets.topic.num.partitions=8
offsets.topic.replication.factor=$copies
transaction.state.log.num.partitions=8
transaction.state.log.replication.factor=$copies
transaction.state.log.min.isr=$min_isr
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=$copies
share.coordinator.state.topic.min.isr=$min_isr
group.initial.rebalance.delay.ms=0
# A node that was killed is let in again only when its old session is over: 9 s by default.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
PROPERTIES
  [[ -z ${STREAMING_HUB_KAFKA_AUTHORIZER-} ]] || write_authorizer "$1" "$own"
}

# A listener for the user "hub" that may do nothing until somebody grants it; who comes by the
# plain one may do everything.
write_authorizer() {
  local sasl=$(($2 + 2))
  cat >>"$dir/node-$1/server.properties" <<PROPERTIES
listeners=PLAINTEXT://127.0.0.1:$2,CONTROLLER://127.0.0.1:$(($2 + 1)),SASL://127.0.0.1:$sasl
advertised.listeners=PLAINTEXT://127.0.0.1:$2,SASL://127.0.0.1:$sasl
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
  required user_hub="hub-secret";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
PROPERTIES
}

# Sets command to run a class of Kafka's jars: java_command [JVM OPTIONS] -- CLASS ARGS. The serial
# collector is the lightest for several brokers on a small machine.
java_command() {
  command=("$java" -XX:+UseSerialGC -XX:-UsePerfData)
  [[ ! -s $archive ]] || command+=("-XX:SharedArchiveFile=$archive")
  while [[ $1 != -- ]]; do
    command+=("$1")
    shift
  done
  shift
  command+=(-cp "$artifacts/libs/*" "$@")
}

# Makes the node's storage unless it is there; the mark is set last, so a torn one is made anew.
format_node() {
  local home=$dir/node-$1
  mkdir -p -- "$home"
  write_properties "$1"
  [[ -e $home/formatted ]] && return
  rm -rf -- "$home/data"
  java_command -XX:TieredStopAtLevel=1 -- kafka.tools.StorageTool format \
    --cluster-id "$cluster_id" --config server.properties
  (cd -- "$home" && exec "${command[@]}") >"$dir/node-$1.log" 2>&1 8>&- 9>&- && : >"$home/formatted"
}

launch_node() {
  local home=$dir/node-$1 pid
  java_command "-Xmx$heap" -XX:+ExitOnOutOfMemoryError ${extra_jvm[@]+"${extra_jvm[@]}"} \
    "-Dstreaming-hub.node=$home" \
    "-Dorg.apache.logging.log4j.level=${STREAMING_HUB_KAFKA_LOG:-WARN}" \
    -- kafka.Kafka server.properties
  # A session of its own: Ctrl-C at the terminal is not for the broker. No file of ours or of our
  # caller stays open in it, or who reads our output would wait for the broker's end.
  (
    for fd in "/proc/$BASHPID/fd/"*; do
      fd=${fd##*/}
      ((fd <= 2 || fd == 255)) || exec {fd}>&-
    done
    cd -- "$home" && exec setsid "${command[@]}"
  ) </dev/null >>"$dir/node-$1.log" 2>&1 &
  pid=$!
  echo "$pid" >"$dir/node-$1.pid"
  disown
  until running_pid "$1" >/dev/null || gone "$pid"; do sleep 0.01; done
}

start_maven() {
  local i failed=() waits=()
  fetch_artifacts
  launched=()
  for i in "$@"; do
    running_pid "$i" >/dev/null && continue
    rm -f -- "$dir/node-$i.pid"
    refuse_taken "$(client_port "$i")"
    refuse_taken $(($(client_port "$i") + 1))
    launched+=("$i")
  done
  if ((${#launched[@]} == 0)); then
    say "already running in $dir"
  else
    save_record
    for i in "${launched[@]}"; do
      format_node "$i" &
      waits[i]=$!
    done
    for i in "${launched[@]}"; do wait "${waits[i]}" || failed+=("$i"); done
    ((${#failed[@]} == 0)) || fail_start "node ${failed[0]} could not be formatted" "${failed[0]}"
    trap 'fail_start "interrupted"' INT TERM
    for i in "${launched[@]}"; do launch_node "$i"; done
  fi
  wait_for_nodes "$@" || fail_start "$failure" "$failed_node"
  trap - INT TERM
}

# Waits until the nodes answer; with all of them, until each knows of all. Below a majority of
# voters nobody can answer, so a node started alone is not waited for then.
wait_for_nodes() {
  local i seen want=1 alive=0 deadline=$((SECONDS + START_SECONDS))
  for ((i = 1; i <= nodes; i++)); do running_pid "$i" >/dev/null && alive=$((alive + 1)); done
  if ((alive * 2 <= nodes)) && [[ -n $node ]]; then
    say "$alive of $nodes nodes run, no majority: not waiting for node $node to answer"
    return
  fi
  (($# < nodes)) || want=$nodes
  for i in "$@"; do
    until seen=$(brokers_seen "$(client_port "$i")") && ((seen >= want)); do
      if ! running_pid "$i" >/dev/null; then
        failure="node $i ended while starting" failed_node=$i
        return 1
      elif ((SECONDS >= deadline)); then
        failure="node $i does not answer after $START_SECONDS s" failed_node=$i
        return 1
      fi
      sleep 0.03
    done
  done
}

# A start that fails leaves nothing running that it started.
fail_start() {
  trap - INT TERM
  kill_hard=1
  stop_nodes ${launched[@]+"${launched[@]}"}
  if [[ -n ${2-} && -f $dir/node-$2.log ]]; then
    say "the end of $dir/node-$2.log:"
    tail -n 15 -- "$dir/node-$2.log" | cut -c 1-300 >&2
  fi
  die "$1"
}

# True when the process has ended to its last thread, and so let go of its ports and files; its
# entry may stay until its parent asks for it.
gone() {
  local -a threads
  [[ -d /proc/$1 ]] || return 0
  threads=("/proc/$1/task/"*)
  ((${#threads[@]} == 1)) && ! grep -qs '^State:[[:space:]]*[^Z[:space:]]' "/proc/$1/status"
}

# Stops these nodes: all get the signal first, then each is waited for.
stop_nodes() {
  local i pid signal=TERM deadline=$((SECONDS + STOP_SECONDS))
  local -a pids=()
  [[ -z $kill_hard && -z $purge ]] || signal=KILL
  for i in "$@"; do
    pid=$(running_pid "$i") || continue
    pids[i]=$pid
    kill "-$signal" "$pid" 2>/dev/null || true
  done
  for i in "${!pids[@]}"; do
    until gone "${pids[i]}"; do
      if ((SECONDS >= deadline)) && [[ $signal == TERM ]]; then
        say "node(s) did not end within $STOP_SECONDS s: SIGKILL"
        signal=KILL
        for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
      fi
      sleep 0.02
    done
  done
  for i in "$@"; do rm -f -- "$dir/node-$i.pid"; done
}
