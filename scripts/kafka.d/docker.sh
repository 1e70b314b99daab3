# shellcheck shell=bash
# Part of scripts/kafka: one broker in a container, the service of docker-compose.kafka.yml.
# Sourced, never run by itself.
#
# shellcheck disable=SC2154 # variables of scripts/kafka

readonly IMAGE=apache/kafka:$KAFKA_VERSION

docker_answers() {
  command -v docker >/dev/null && timeout 10 docker info >/dev/null 2>&1 &&
    timeout 10 docker compose version >/dev/null 2>&1
}

docker_image() {
  docker image inspect "$IMAGE" >/dev/null 2>&1 || docker pull "$IMAGE" >&2
}

compose() {
  KAFKA_PORT=$port KAFKA_HEAP=$heap KAFKA_IMAGE=$IMAGE docker compose \
    -p "streaming-hub-kafka-$(cksum <<<"$dir" | cut -d ' ' -f 1)" \
    -f "$root/docker-compose.kafka.yml" "$@"
}

start_docker() {
  local deadline=$((SECONDS + START_SECONDS))
  if running_pid 1 >/dev/null; then
    say "already running in a container"
  else
    refuse_taken "$port"
    docker_image || die "no image $IMAGE"
    save_record
    compose up -d kafka >&2 || die "docker compose could not start the broker"
  fi
  until brokers_seen "$port" >/dev/null; do
    if ((SECONDS >= deadline)) || ! running_pid 1 >/dev/null; then
      compose logs --tail 15 kafka >&2 || true
      compose down >&2 || true
      die "the broker's container does not answer"
    fi
    sleep 0.1
  done
}

stop_docker() {
  if [[ -n $purge ]]; then
    compose down --volumes --timeout 0 >&2
  elif [[ -n $kill_hard ]]; then
    if running_pid 1 >/dev/null; then compose kill --signal KILL kafka >&2; fi
  else
    compose stop --timeout "$STOP_SECONDS" kafka >&2
  fi
}
