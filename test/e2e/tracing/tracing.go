// Package tracing holds what arrives at an OpenTelemetry collector against what a running proxy was
// sent, over OTLP/gRPC.
package tracing
