# Stands in for the image golang, which takes a registry: Go itself and what it has at hand are this
# machine's, mounted.
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "/bin"]
RUN mkdir -p /go /modules /cache /root /tmp /usr/local/go
ENV PATH=/usr/local/go/bin:/bin HOME=/root GOPATH=/go GOMODCACHE=/modules GOCACHE=/cache GOPROXY=off GOTOOLCHAIN=local
