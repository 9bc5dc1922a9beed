# Spillway in a container: a static program, no shell, not root. Builds for the target platform
# without emulating it. The same sources, base images and arguments give the same program; name the
# bases by digest to have the same image, too.
ARG GOLANG=docker.io/library/golang:1.26.8
ARG BASE=gcr.io/distroless/static:nonroot

FROM --platform=$BUILDPLATFORM $GOLANG AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY cmd ./cmd
COPY internal ./internal
ARG VERSION=unknown REVISION=unknown TARGETOS TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/cache \
    GOCACHE=${GOCACHE:-/go/cache} CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION -X main.commit=$REVISION" \
    -o /spillway ./cmd/proxy

FROM $BASE
COPY --from=build /spillway /spillway
COPY LICENSE /LICENSE
USER 65532:65532
# 6443: the API (--listen-tls). 8001: the API in plain HTTP, on loopback only. 9464: health and
# metrics (--metrics-listen). Kubernetes asks /livez and /readyz by itself; there is no shell here
# that could.
EXPOSE 6443 8001 9464
ENTRYPOINT ["/spillway"]
ARG BASE VERSION=unknown REVISION=unknown SOURCE= CREATED=
LABEL org.opencontainers.image.title="Spillway" \
      org.opencontainers.image.description="Watch fan-out proxy for Kubernetes: many LIST and WATCH clients, one upstream watch" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.base.name="$BASE" \
      org.opencontainers.image.created="$CREATED"
