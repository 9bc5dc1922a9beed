package passthrough

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestFailureStatus(t *testing.T) {
	const secret = "10.1.2.3"
	addr := &net.TCPAddr{IP: net.ParseIP(secret)}
	dial := &net.OpError{Op: "dial", Net: "tcp", Addr: addr, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	f := func(c class, err error, code int32, kind string) {
		t.Helper()
		s := failureStatus(c, fmt.Errorf("round trip: %w", err))
		if s.Code != code || !strings.Contains(s.Message, kind) || strings.Contains(s.Message, secret) {
			t.Errorf("%v on a %v: %d %s; want %d, %s", err, c, s.Code, s.Message, code, kind)
		}
		if retry := s.Details != nil && s.Details.RetryAfterSeconds > 0; retry != (code == 503) {
			t.Errorf("%v on a %v: repeating invited: %v", err, c, retry)
		}
	}
	for _, c := range []class{classRead, classWrite, classStream, classConnect} {
		f(c, dial, 503, "connection refused")
		f(c, &net.DNSError{Name: "host-" + secret}, 503, "its name does not resolve")
		f(c, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, 503, "its certificate is not trusted")
		f(c, tls.RecordHeaderError{Msg: "not TLS"}, 503, "no answer")
	}
	read := &net.OpError{Op: "read", Net: "tcp", Addr: addr, Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for c, code := range map[class]int32{classRead: 503, classStream: 503, classWrite: 502, classConnect: 502} {
		f(c, read, code, "it closed the connection")
		f(c, io.EOF, code, "it closed the connection")
		f(c, context.DeadlineExceeded, code, "timeout")
		f(c, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, code, "timeout")
		f(c, errors.New("malformed HTTP response from "+secret), code, "no answer")
	}
}
