package largeheaders

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/tlsconn"
	"spillway/internal/tlsconn/tlsconntest"
)

// perHandshake is what a connection may make the process hold by its handshake, certificates, and
// what it sends after it without a request: as documented, and its goroutine and buffers.
const perHandshake = 128<<10 + 16<<10

// TestHandshakesHoldLittle: connections that send as much as TLS lets them, and no request, hold
// what SECURITY.md says, and never more than the budget; a client that means well is served.
func TestHandshakesHoldLittle(t *testing.T) {
	binary := buildMeasured(t)
	authority := tlsconntest.Certificate(t, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	file := filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate[0]})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, budget := range []string{"1Ti", "256Mi"} {
		t.Run(budget, func(t *testing.T) {
			w := newWorld(t, binary, "--memory-budget="+budget, "--client-ca-file="+file)
			for name, attack := range attacksOfTLS(t) {
				w.measureHandshakes(name, attack)
			}
		})
	}
}

// attackOfTLS makes a connection that sends as much as TLS lets it, or more.
type attackOfTLS struct {
	connect func(address string) (net.Conn, error)
	least   int64 // bytes that each connection holds: the attack does what it says
}

func attacksOfTLS(t *testing.T) map[string]attackOfTLS {
	t.Helper()
	huge := tlsconntest.Certificate(t, tlsconntest.Usages(80_000))
	dense := tlsconntest.Certificate(t, tlsconntest.Usages(700)) // just below what is accepted
	return map[string]attackOfTLS{
		"a certificate of 240 kB": {connect: func(address string) (net.Conn, error) {
			return tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true,
				GetClientCertificate: tlsconntest.Always(huge)})
		}},
		"a certificate, and a message without an end": {least: 64 << 10, connect: func(address string) (net.Conn, error) {
			c, err := tlsconntest.Dial(t, address, nil, dense)
			if err == nil {
				_ = c.SendUnfinished(tlsconn.SilentBytesLimit - 200) // fails if it is cut
			}
			return c, err
		}},
		"a message of 256 KiB without an end": {connect: func(address string) (net.Conn, error) {
			c, err := tlsconntest.Dial(t, address, []string{"h2"})
			if err == nil {
				_ = c.SendUnfinished(256 << 10) // fails when it is cut
			}
			return c, err
		}},
	}
}

// measureHandshakes has many connections attack, and compares what the process holds with what it
// held before.
func (w *world) measureHandshakes(name string, attack attackOfTLS) {
	w.Helper()
	const connections = 300
	before := w.held()
	var all sync.WaitGroup
	opened := make(chan net.Conn, connections)
	for range 10 {
		all.Go(func() {
			for range connections / 10 {
				if c, err := attack.connect(strings.TrimPrefix(w.proxy.TLS, "https://")); err == nil {
					opened <- c
				}
			}
		})
	}
	all.Wait()
	close(opened)
	var conns []net.Conn
	for c := range opened {
		conns = append(conns, c)
	}
	w.servesWellMeaning()
	held := w.held().less(before)
	w.Logf("%s, %d connections: %d bytes in use and %d resident each", name, len(conns), held.used/connections,
		held.resident/connections)
	if attack.least > 0 && held.used < connections*attack.least {
		w.Errorf("%s: %d connections hold no more than %d bytes", name, len(conns), held.used)
	}
	if held.used > connections*perHandshake || held.resident > connections*perHandshake+16<<20 {
		w.Errorf("%s: %d connections hold %d bytes, and %d resident; documented are %d", name, len(conns), held.used,
			held.resident, connections*perHandshake)
	}
	for _, c := range conns {
		_ = c.Close()
	}
}

// servesWellMeaning has a client with credentials make requests.
func (w *world) servesWellMeaning() {
	w.Helper()
	client := w.client()
	client.Timeout = time.Minute
	for range 20 {
		response, err := client.Get(w.proxy.TLS + "/api/v1/configmaps?resourceVersion=0")
		if err != nil {
			w.Fatal(err)
		}
		var body bytes.Buffer
		_, err = body.ReadFrom(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != 200 {
			w.Fatal(response.Status, err)
		}
	}
}
