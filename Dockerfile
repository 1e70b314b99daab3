# The hub as an image: `docker build -t streaming-hub .`
#
# Built in one stage, run in another that has neither compiler nor shell tools beyond Debian's
# slimmest. The process is nobody's (65532), the root file system may be read-only: the only thing
# written is /var/lib/streaming-hub, a volume, and that is a cache.
FROM rust:1.95-slim-trixie AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends build-essential libclang-dev libssl-dev make \
      perl pkg-config zlib1g-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# All of the workspace, as everywhere: another selection builds RocksDB another time.
RUN --mount=type=cache,target=/root/.cargo/registry --mount=type=cache,target=/src/target \
    cargo build --workspace --profile image --locked \
 && cp target/image/streaming-hub /streaming-hub

FROM debian:trixie-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates libssl3t64 zlib1g \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir -p /var/lib/streaming-hub && chown 65532:65532 /var/lib/streaming-hub
COPY --from=build /streaming-hub /usr/local/bin/streaming-hub
USER 65532:65532
ENV STREAMING_HUB_STATE_DIR=/var/lib/streaming-hub \
    STREAMING_HUB_API__LISTEN=0.0.0.0:8080 \
    STREAMING_HUB_LOG__FORMAT=json
VOLUME /var/lib/streaming-hub
EXPOSE 8080
# SIGTERM drains: give it the drain, the requests and some more before it is killed.
STOPSIGNAL SIGTERM
ENTRYPOINT ["streaming-hub"]
CMD ["run"]
