// Package tracing tests the spans that reach an OpenTelemetry collector over OTLP/gRPC: from a
// running proxy, and from the exporter alone.
package tracing
