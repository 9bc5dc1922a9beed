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

// transportTo is by what a command asks a running proxy at base, which the flag named address gave. It trusts what is in caFile, instead of the system's
// certificates if there is one.
func transportTo(base *url.URL, address, caFile string) (http.RoundTripper, error) {
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
			return nil, fmt.Errorf("--ca-file=%s: has a meaning only where --%s is https", caFile, address)
		}
	}
	return &http.Transport{TLSClientConfig: secure, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second}, nil
}

// onLoopback reports that a URL is on this machine.
func onLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
