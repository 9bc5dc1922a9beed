# Stands in for distroless/static: no more than it has that matters to a static program.
FROM scratch
COPY passwd /etc/passwd
USER 65532
WORKDIR /home/nonroot
