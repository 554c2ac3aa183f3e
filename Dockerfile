# The gateway in a small image: a build stage with the toolchain, and a run stage with the binary alone.

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
# Sources and dependencies that were compiled before are kept beside the image, not in it.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/build/target \
    cargo build --release --locked --bin oncegate \
    && strip -o /oncegate target/release/oncegate \
    && mkdir /data

# glibc, CA certificates, an unprivileged user, and nothing to run but the gateway: no shell either.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /oncegate /usr/local/bin/oncegate
# Where SQLite may write. With another database the root file system can be read-only.
COPY --from=build --chown=nonroot:nonroot /data /var/lib/oncegate
WORKDIR /var/lib/oncegate
USER nonroot
EXPOSE 8080
# Drains. Allow more than server.drain_timeout until SIGKILL.
STOPSIGNAL SIGTERM
# No HEALTHCHECK: it would have to be one more program in the image, and whatever runs the container can ask
# over HTTP: GET /healthz says that the process answers, GET /readyz that it takes requests.
ENTRYPOINT ["/usr/local/bin/oncegate"]
CMD ["serve", "--config", "/etc/oncegate/oncegate.toml"]
