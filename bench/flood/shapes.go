package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/bench/rig"
)

// shape is a way in which clients without credentials hold what others need (SECURITY.md, SPW-19 to
// SPW-25). Each connection that is cut comes again.
type shape struct {
	name        string
	connections int
	tls         bool                          // on the TLS listener
	protocols   []string                      // of TLS
	certificate func() func() tls.Certificate // nil: none
	atOnce      bool                          // it comes again at once: its price is what it attacks with
	// handshakes says that the attack is a load of handshakes, which any server has to do: the client
	// may wait for as long as beside the same attack at kube-apiserver.
	handshakes bool
	// attack sends what it sends over a new connection. What it returns is kept until it is cut.
	attack func(ctx context.Context, c net.Conn) error
}

var shapes = []shape{
	{name: "chunked exec without an end", connections: 300, attack: sends(
		"POST /api/v1/namespaces/default/pods/x/exec?command=id HTTP/1.1\r\nHost: localhost\r\n" +
			"Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n")},
	{name: "writes whose bodies stop", connections: 700, attack: sends(
		"PATCH /api/v1/namespaces/default/configmaps/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n" +
			"Content-Type: application/merge-patch+json\r\n\r\n" + strings.Repeat(" ", 9000))},
	{name: "bodies of 1 MiB without their last byte", connections: 100, attack: sends(
		"PATCH /api/v1/namespaces/default/configmaps/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n" +
			"Content-Type: application/merge-patch+json\r\n\r\n" + strings.Repeat(" ", 1<<20-1))},
	{name: "HTTP/2 bodies beside a token that upstream does not read", connections: 8, tls: true,
		protocols: []string{"h2"}, attack: sendBodies},
	{name: "HTTP/2 answers that are not taken", connections: 300, tls: true, protocols: []string{"h2"},
		attack: takeNothing},
	{name: "a certificate of 240 kB", connections: 8, tls: true, certificate: dense, attack: sends(smallGet)},
	{name: "certificates with many authorities, a connection for each request", connections: 4, tls: true,
		certificate: manyAuthorities, attack: askOnce, atOnce: true, handshakes: true},
	{name: "certificates with many authorities, one connection", connections: 4, tls: true,
		certificate: manyAuthorities, attack: askAlways},
}

const smallGet = "GET /api/v1/namespaces/default/configmaps/x HTTP/1.1\r\nHost: localhost\r\n\r\n"

// attackShapes measures a normal client without and with each shape.
func attackShapes(ctx context.Context, p *rig.Proxy, upstream string, direct kubernetes.Interface, token string,
	r *rig.Report) error {
	clientOf := func(url string) (*client, error) {
		return newClient(ctx, &rest.Config{Host: url, QPS: -1, BearerToken: token,
			TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, direct)
	}
	client, err := clientOf(p.TLSURL)
	if err != nil {
		return err
	}
	defer client.stop()
	var all []comparison
	for i, s := range shapes {
		if !strings.Contains(s.name, *only) {
			continue
		}
		without := client.measure(ctx, *storm)
		stop, err := startAttack(s.address(p), s.connections, i)
		if err != nil {
			return err
		}
		with := client.measure(ctx, *storm)
		memory, err := p.Memory(ctx)
		stop()
		if err != nil {
			return err
		}
		r.Note(s.name+": without", "%s", without)
		r.Note(s.name+": with", "%s; %d MB resident", with, memory.RSS>>20)
		compared := comparison{name: s.name, without: without, with: with}
		if !s.handshakes {
			all = append(all, compared)
			continue
		}
		there, err := clientOf(upstream)
		if err != nil {
			return err
		}
		stop, err = startAttack(strings.TrimPrefix(upstream, "https://"), s.connections, i)
		if err != nil {
			there.stop()
			return err
		}
		same := there.measure(ctx, *storm)
		stop()
		there.stop()
		r.Note(s.name+": the client and the attack at kube-apiserver", "%s", same)
		compared.upstream = &same
		all = append(all, compared)
	}
	checkServed(r, all)
	return nil
}

func (s shape) address(p *rig.Proxy) string {
	if s.tls {
		return strings.TrimPrefix(p.TLSURL, "https://")
	}
	return strings.TrimPrefix(p.URL, "http://")
}

// persist opens a connection, sends, and stays until it is cut; again and again.
func (s shape) persist(ctx context.Context, address string) {
	for ctx.Err() == nil {
		_ = s.once(ctx, address) // it was cut: the next one is as good
		if !s.atOnce {
			time.Sleep(again)
		}
	}
}

func (s shape) once(ctx context.Context, address string) error {
	c, err := (&net.Dialer{Timeout: tooLate}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if s.tls {
		config := &tls.Config{InsecureSkipVerify: true, NextProtos: s.protocols} // #nosec G402 -- the proxy's own certificate
		if s.certificate != nil {
			cert := s.certificate()()
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
		}
		secure := tls.Client(c, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return err
		}
		c = secure
	}
	if err := s.attack(ctx, c); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, c)
	return err
}

// sends is an attack by some bytes.
func sends(text string) func(context.Context, net.Conn) error {
	return func(_ context.Context, c net.Conn) error {
		_, err := io.WriteString(c, text)
		return err
	}
}

// askOnce asks, and takes the answer's beginning.
func askOnce(_ context.Context, c net.Conn) error {
	if _, err := io.WriteString(c, smallGet); err != nil {
		return err
	}
	if _, err := c.Read(make([]byte, 4096)); err != nil {
		return err
	}
	return c.Close()
}

// askAlways asks again and again.
func askAlways(ctx context.Context, c net.Conn) error {
	answer := make([]byte, 4096)
	for ctx.Err() == nil {
		if _, err := io.WriteString(c, smallGet); err != nil {
			return err
		}
		if _, err := c.Read(answer); err != nil {
			return err
		}
	}
	return nil
}

// openHTTP2 begins a connection whose streams begin with so large a window.
func openHTTP2(c net.Conn, window uint32) (*http2.Framer, error) {
	framer := http2.NewFramer(c, c)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, err
	}
	return framer, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
}

// takeNothing asks over HTTP/2 without a window for the answer.
func takeNothing(_ context.Context, c net.Conn) error {
	framer, err := openHTTP2(c, 0)
	if err != nil {
		return err
	}
	return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true,
		BlockFragment: head(":method", "GET", ":path", "/api/v1/nodes")})
}

// sendBodies opens 99 streams with bodies of 256 KiB that do not end, as far as the windows allow.
func sendBodies(_ context.Context, c net.Conn) error {
	framer, err := openHTTP2(c, 1<<16)
	if err != nil {
		return err
	}
	for i := range uint32(99) {
		id := 2*i + 1
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, BlockFragment: head(
			":method", "POST", ":path", "/api/v1/namespaces/default/configmaps", "content-length", "262144",
			"sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.eA")})
		if err != nil {
			return err
		}
		// Beyond the connection's window the proxy ends the connection, which comes again.
		if err := framer.WriteData(id, false, make([]byte, 16<<10)); err != nil {
			return err
		}
	}
	return nil
}

// head encodes fields, of which each name is followed by its value.
func head(fields ...string) []byte {
	var block strings.Builder
	encoder := hpack.NewEncoder(&block)
	fields = append(fields[:len(fields):len(fields)], ":scheme", "https", ":authority", "localhost")
	for _, pseudo := range []bool{true, false} { // these come first
		for i := 0; i < len(fields); i += 2 {
			if strings.HasPrefix(fields[i], ":") == pseudo {
				_ = encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // into memory
			}
		}
	}
	return []byte(block.String())
}

// dense is a certificate with 80,000 extended key usages.
var dense = sync.OnceValue(func() func() tls.Certificate {
	usages := make([]asn1.ObjectIdentifier, 80_000)
	for i := range usages {
		usages[i] = asn1.ObjectIdentifier{1, 2}
	}
	a := newAuthorities(0)
	cert := a.sign(&x509.Certificate{UnknownExtKeyUsage: usages})
	return func() tls.Certificate { return cert }
})

// levels of authorities, two of each name, are as many as a client may send.
const levels = 4

// manyAuthorities are certificates of which each is another one, beside authorities that lead to no
// end by 2 to the power of levels ways.
var manyAuthorities = sync.OnceValue(func() func() tls.Certificate {
	a := newAuthorities(levels)
	return func() tls.Certificate { return a.sign(&x509.Certificate{}) }
})

// authorities are those that a client sends beside its certificate.
type authorities struct {
	key    *ecdsa.PrivateKey // of all of them: P-521, which costs most
	chain  [][]byte
	serial atomic.Int64
}

func newAuthorities(levels int) *authorities {
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		panic(err)
	}
	a := &authorities{key: key}
	for level := range levels {
		for range 2 {
			a.chain = append(a.chain, a.der(&x509.Certificate{Subject: authority(level), IsCA: true,
				BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, level+1))
		}
	}
	return a
}

func authority(level int) pkix.Name { return pkix.Name{CommonName: fmt.Sprint("authority ", level)} }

// der is a certificate that the authority of a level issued.
func (a *authorities) der(c *x509.Certificate, level int) []byte {
	c.SerialNumber = big.NewInt(a.serial.Add(1))
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, &x509.Certificate{Subject: authority(level)}, a.key.Public(), a.key)
	if err != nil {
		panic(err)
	}
	return der
}

// sign makes a client's certificate, beside the authorities.
func (a *authorities) sign(leaf *x509.Certificate) tls.Certificate {
	leaf.Subject, leaf.ExtKeyUsage = pkix.Name{CommonName: "client"}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return tls.Certificate{PrivateKey: a.key, Certificate: append([][]byte{a.der(leaf, 0)}, a.chain...)}
}
