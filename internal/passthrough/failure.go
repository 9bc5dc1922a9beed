package passthrough

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
)

// failureStatus is the answer when upstream gave none. It invites the client to repeat reads, and
// what never got a connection and so was not carried out. It names the kind of failure only;
// addresses and certificates are for the log.
func failureStatus(c class, err error) *metav1.Status {
	message := "upstream API server is unavailable: " + FailureKind(err)
	if c == classRead || c == classStream || isNeverSent(err) {
		return apistatus.Unavailable(message)
	}
	return apistatus.BadGateway(message + "; the request may have been carried out")
}

// isNeverSent reports whether err means that no byte of the request can have reached upstream.
func isNeverSent(err error) bool {
	var (
		op   *net.OpError
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
		rec  tls.RecordHeaderError
	)
	switch {
	case isCredentialError(err):
		return true
	case errors.As(err, &op):
		return op.Op == "dial"
	case errors.As(err, &dns), errors.As(err, &cert), errors.As(err, &rec):
		return true
	}
	return false
}

// FailureKind names err without anything that identifies a machine.
func FailureKind(err error) string {
	var (
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
	)
	switch {
	case isCredentialError(err):
		return "the proxy has no credentials for it"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &dns):
		return "its name does not resolve"
	case errors.As(err, &cert):
		return "its certificate is not trusted"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return "timeout"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closed the connection"
	}
	return "no answer"
}

// isCredentialError reports that nothing was sent, because the proxy lacks its own credentials
// (transport.CredentialError).
func isCredentialError(err error) bool {
	var e interface{ NeverSent() bool }
	return errors.As(err, &e) && e.NeverSent()
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// PanicField is a panic for the log, without any byte of the request in which it happened: the text
// of a runtime error, and of other values only their type.
func PanicField(p any) zap.Field {
	if e, ok := p.(runtime.Error); ok {
		return zap.String("panic", e.Error())
	}
	return zap.String("panic", fmt.Sprintf("%T", p))
}
