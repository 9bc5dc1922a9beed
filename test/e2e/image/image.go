// Package image holds the container image to what it promises: the Dockerfile builds, its program
// is the one that the same sources give elsewhere, and it runs as an unprivileged user, without a
// capability and with nothing that it could write. Registries are not needed: what the Dockerfile
// builds on is made here, of Go's own folder and BusyBox.
package image
