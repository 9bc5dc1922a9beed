# Spillway in a container: a static program, no shell, not root. Builds for the platform it is asked for without emulating it.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
ENV GOCACHE=/go/cache
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY cmd ./cmd
COPY internal ./internal
ARG VERSION=unknown TARGETOS TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/cache \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /spillway ./cmd/proxy

FROM gcr.io/distroless/static:nonroot
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Spillway" \
      org.opencontainers.image.description="Watch fan-out proxy for Kubernetes: many LIST and WATCH clients, one upstream watch" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /spillway /spillway
COPY LICENSE /LICENSE
USER 65532:65532
# 6443: the API (--listen-tls). 8001: the API in plain HTTP, on loopback only. 9464: health and metrics (--metrics-listen).
EXPOSE 6443 8001 9464
# Kubernetes asks /livez and /readyz by itself; there is no shell here that could.
HEALTHCHECK NONE
ENTRYPOINT ["/spillway"]
