package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"spillway/internal/config"
)

const handshakeTimeout = 10 * time.Second

// newTransport makes the transport by which a command sends requests to base, the URL in its flag
// serverFlag. It trusts the certificates in caFile, or the system's if caFile is empty.
func newTransport(base *url.URL, serverFlag, caFile string) (*http.Transport, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		pem, err := os.ReadFile(caFile) // #nosec G304 -- the user names it
		if err != nil {
			return nil, fmt.Errorf("--ca-file=%s: cannot be read: %s", caFile, config.Cause(err))
		}
		secure.RootCAs = x509.NewCertPool()
		switch {
		case !secure.RootCAs.AppendCertsFromPEM(pem):
			return nil, fmt.Errorf("--ca-file=%s: holds no PEM certificate", caFile)
		case base.Scheme != "https":
			return nil, fmt.Errorf("--ca-file=%s: requires https in --%s", caFile, serverFlag)
		}
	}
	return &http.Transport{
		TLSClientConfig: secure, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: handshakeTimeout,
	}, nil
}

// onLoopback reports that a URL is on this machine.
func onLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
