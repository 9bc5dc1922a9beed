package largeheaders

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/fakeapiserver"
	"spillway/internal/tlsconn"
	"spillway/internal/tlsconn/tlsconntest"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// perHandshake is what a connection may make the process hold by its handshake, certificates, and
// what it sends after it without a request: as documented, and its goroutine and buffers.
const perHandshake = 128<<10 + 16<<10

// leftByHandshake is what a connection may leave in use once it has ended, with its part of what
// the process grows by once.
const leftByHandshake = 16 << 10

// noiseOfPlaces is by how much more is resident than is in use, by pages of which a part is.
const noiseOfPlaces = 2 << 20

// TestHandshakesHoldLittle: connections that send as much as TLS lets them, and no request, hold
// what SECURITY.md says, and never more than the budget; a client that means well is served.
func TestHandshakesHoldLittle(t *testing.T) {
	binary, file := buildMeasured(t), writeAuthority(t)
	for _, budget := range []string{"1Ti", "256Mi"} {
		t.Run(budget, func(t *testing.T) {
			w := newWorld(t, binary, "--memory-budget="+budget, "--client-ca-file="+file)
			for name, attack := range attacksOfTLS(t, "h2") {
				w.measureHandshakes(name, attack)
			}
		})
	}
}

// writeAuthority writes the certificate of an authority that has signed none, so that a listener
// requests certificates.
func writeAuthority(t *testing.T) string {
	t.Helper()
	authority := tlsconntest.Certificate(t, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	file := filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate[0]})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// attackOfTLS makes a connection that sends as much as TLS lets it, or more.
type attackOfTLS struct {
	connect func(address string) (net.Conn, error)
	least   int64 // bytes that each connection holds: the attack does what it says
}

// attacksOfTLS are over connections that offer protocols.
func attacksOfTLS(t *testing.T, protocols ...string) map[string]attackOfTLS {
	t.Helper()
	huge := tlsconntest.Certificate(t, tlsconntest.Usages(80_000))
	dense := tlsconntest.Certificate(t, tlsconntest.Usages(700)) // just below what is accepted
	return map[string]attackOfTLS{
		"a certificate of 240 kB": {connect: func(address string) (net.Conn, error) {
			return tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true,
				GetClientCertificate: tlsconntest.Always(huge)})
		}},
		"a handshake without an end": {least: 32 << 10, connect: func(address string) (net.Conn, error) {
			c, err := net.Dial("tcp", address)
			if err == nil {
				_, _ = c.Write(tlsconntest.UnfinishedHello(tlsconn.HandshakeBytesLimit)) // fails if it is cut
			}
			return c, err
		}},
		"a certificate, and a message without an end": {least: 64 << 10, connect: func(address string) (net.Conn, error) {
			c, err := tlsconntest.Dial(t, address, nil, dense)
			if err == nil {
				_ = c.SendUnfinished(tlsconn.SilentBytesLimit - 200) // fails if it is cut
			}
			return c, err
		}},
		"a message of 256 KiB without an end": {connect: func(address string) (net.Conn, error) {
			c, err := tlsconntest.Dial(t, address, protocols)
			if err == nil {
				_ = c.SendUnfinished(256 << 10) // fails when it is cut
			}
			return c, err
		}},
	}
}

// open makes many connections, ten at a time, and returns those whose handshake is done.
func (a attackOfTLS) open(address string, connections int) (conns []net.Conn) {
	var all sync.WaitGroup
	opened := make(chan net.Conn, connections)
	for range 10 {
		all.Go(func() {
			for range connections / 10 {
				if c, err := a.connect(address); err == nil {
					opened <- c
				}
			}
		})
	}
	all.Wait()
	close(opened)
	for c := range opened {
		conns = append(conns, c)
	}
	return conns
}

// measureHandshakes has many connections attack, and compares what the process holds with what it
// held before.
func (w *world) measureHandshakes(name string, attack attackOfTLS) {
	w.Helper()
	const connections = 300
	before := w.held()
	conns := attack.open(strings.TrimPrefix(w.proxy.TLS, "https://"), connections)
	w.servesWellMeaning("/api/v1/configmaps?resourceVersion=0")
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
	process.Awaiting(w.T, name+": its memory to be free", func(context.Context) error {
		if left := w.held().less(before).used; left > connections*leftByHandshake {
			return fmt.Errorf("%d bytes are in use", left)
		}
		return nil
	})
}

// servesWellMeaning has a client with credentials make requests.
func (w *world) servesWellMeaning(path string) {
	w.Helper()
	client := w.client()
	client.Timeout = time.Minute
	for range 20 {
		response, err := client.Get(w.proxy.TLS + path)
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

// TestHandshakesOfOtherListenersHoldLittle: the same for all places of the listener of operators
// and of the webhook's. More connections than that take places from each other.
func TestHandshakesOfOtherListenersHoldLittle(t *testing.T) {
	binary, authority := buildMeasured(t), writeAuthority(t)
	cert, key := writePair(t)
	pair := []string{"--tls-cert-file=" + cert, "--tls-private-key-file=" + key, "--client-ca-file=" + authority}
	for name, listener := range map[string]struct {
		places  int64 // in SECURITY.md
		started string
		args    func(t *testing.T) []string
	}{
		"metrics": {64, "serving health and metrics", func(t *testing.T) []string {
			up := fakeapiserver.New(fakeapiserver.Options{})
			t.Cleanup(up.Close)
			return []string{"--kubeconfig=" + writeKubeconfig(t, up), "--resources=configmaps", "--listen=127.0.0.1:0",
				"--metrics-listen=0.0.0.0:0"}
		}},
		"webhook": {128, "serving admission reviews", func(*testing.T) []string {
			return []string{"webhook", "--listen=127.0.0.1:0", "--image=spillway:1", "--namespace-limits=ignore"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newUnstarted(t)
			w.proxy = &process.Proxy{TLS: "https://" + startServer(t, listener.started, binary,
				append(listener.args(t), pair...)...)}
			for name, attack := range attacksOfTLS(t) {
				w.measurePlaces(name, attack, listener.places)
			}
		})
	}
}

// measurePlaces has twice as many connections attack as there are places. It does so again until
// all places hold what the attack says: connections that send nothing more have a few seconds. What
// the process holds has the same bound each time.
func (w *world) measurePlaces(name string, attack attackOfTLS, places int64) {
	w.Helper()
	address := strings.TrimPrefix(w.proxy.TLS, "https://")
	round := func(before held) held {
		conns := attack.open(address, 2*int(places))
		now := w.held().less(before)
		w.servesWellMeaning("/livez")
		for _, c := range conns {
			_ = c.Close()
		}
		return now
	}
	round(held{}) // the process grows by what all connections have in common
	process.Awaiting(w.T, name+": places that are taken", func(context.Context) error {
		held := round(w.held())
		w.Logf("%s, %d places: %d bytes in use and %d resident each", name, places, held.used/places, held.resident/places)
		if held.used > places*perHandshake || held.resident > places*perHandshake+noiseOfPlaces {
			w.Fatalf("%s: %d places hold %d bytes, and %d resident; documented are %d", name, places, held.used, held.resident,
				places*perHandshake)
		}
		if held.used < places*attack.least {
			return fmt.Errorf("they hold no more than %d bytes", held.used)
		}
		return nil
	})
}

// startServer starts a program and returns the address that it tells with a message.
func startServer(t *testing.T, message, binary string, args ...string) (address string) {
	t.Helper()
	log := process.NewLog(t)
	child, err := process.Start(exec.Command(binary, args...), nil, log.File)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		child.Kill()
		if t.Failed() {
			log.Show(t)
		}
	})
	process.Awaiting(t, message, func(context.Context) error {
		if child.Ended() {
			log.Show(t)
			t.Fatalf("it ended: %v", child.Err)
		}
		for line := range bytes.Lines(log.Text()) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal(line, &entry) == nil && entry.Msg == message {
				address = entry.Address
				return nil
			}
		}
		return errors.New("not yet")
	})
	return address
}

// writePair writes a server's certificate and its key.
func writePair(t *testing.T) (cert, key string) {
	t.Helper()
	authority, err := controlplane.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.IssueServer("server")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := errors.Join(os.WriteFile(cert, pair.Cert, 0o600), os.WriteFile(key, pair.Key, 0o600)); err != nil {
		t.Fatal(err)
	}
	return cert, key
}
