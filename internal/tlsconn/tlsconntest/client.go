// Package tlsconntest has what tests of bounds below TLS share: certificates that are small encoded
// and large decoded, and a client that sends records that crypto/tls does not send.
package tlsconntest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// Types of TLS records, and of a handshake message.
const (
	RecordHandshake       = 22
	RecordApplicationData = 23

	messageCertificate = 11
)

// RecordClient is a TLS 1.3 client whose handshake is done. It sends any record;
// nothing may be written to its TLS connection, whose keys it has.
type RecordClient struct {
	net.Conn // below TLS
	seal     cipher.AEAD
	nonce    []byte
	sequence uint64
}

// Dial makes a handshake with the server at an address, with certificates, and returns a
// RecordClient. An error is the handshake's.
func Dial(t testing.TB, address string, protocols []string, certificates ...tls.Certificate) (*RecordClient, error) {
	t.Helper()
	below, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = below.Close() })
	_ = below.SetDeadline(time.Now().Add(time.Minute)) // fails on a closed connection, as what follows will
	var keys bytes.Buffer
	conn := tls.Client(below, &tls.Config{
		InsecureSkipVerify: true, // #nosec G402 -- a throw-away certificate
		MinVersion:         tls.VersionTLS13, KeyLogWriter: &keys, NextProtos: protocols,
		GetClientCertificate: Always(certificates...),
	})
	if err := conn.Handshake(); err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	if suite := conn.ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Fatalf("the cipher suite is %s", tls.CipherSuiteName(suite))
	}
	secret := trafficSecret(t, keys.String())
	block, err := aes.NewCipher(expand(t, secret, "key", 16))
	if err != nil {
		t.Fatal(err)
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return &RecordClient{Conn: below, seal: seal, nonce: expand(t, secret, "iv", 12)}, nil
}

// Always has a client send its certificate, whatever authorities the server asks for.
func Always(certificates ...tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if len(certificates) == 0 {
			return new(tls.Certificate), nil
		}
		return &certificates[0], nil
	}
}

// trafficSecret is the client's first secret for application data, of a key log.
func trafficSecret(t testing.TB, log string) []byte {
	t.Helper()
	for line := range strings.Lines(log) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(fields[2])
			if err != nil {
				t.Fatal(err)
			}
			return secret
		}
	}
	t.Fatal("the handshake has logged no secret")
	return nil
}

// expand is HKDF-Expand-Label (RFC 8446, section 7.1) without a context.
func expand(t testing.TB, secret []byte, label string, length int) []byte {
	t.Helper()
	label = "tls13 " + label
	info := []byte{0, byte(length), byte(len(label))} // #nosec G115 -- a few bytes
	info = append(append(info, label...), 0)
	key, err := hkdf.Expand(sha256.New, secret, string(info), length)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Send sends a record of a type, of at most 16 KiB.
func (c *RecordClient) Send(kind byte, content []byte) error {
	inner := append(bytes.Clone(content), kind)
	header := []byte{RecordApplicationData, 3, 3, 0, 0}
	binary.BigEndian.PutUint16(header[3:], uint16(len(inner)+c.seal.Overhead())) // #nosec G115 -- at most 16 KiB
	nonce := bytes.Clone(c.nonce)
	var sequence [8]byte
	binary.BigEndian.PutUint64(sequence[:], c.sequence)
	for i, b := range sequence {
		nonce[4+i] ^= b
	}
	c.sequence++
	_, err := c.Conn.Write(c.seal.Seal(header, nonce, inner, header))
	return err
}

// SendUnfinished sends a handshake message of so many bytes without its last byte: one with
// certificates, for which crypto/tls takes the most. An error says that the server ended the
// connection.
func (c *RecordClient) SendUnfinished(size int) error {
	message := make([]byte, size-1)
	binary.BigEndian.PutUint32(message, messageCertificate<<24|uint32(size-4)) // #nosec G115 -- 3 bytes
	for len(message) > 0 {
		n := min(len(message), 16<<10)
		if err := c.Send(RecordHandshake, message[:n]); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// UnfinishedHello is the beginning of a ClientHello, in records of so many bytes in all.
func UnfinishedHello(size int) []byte {
	const header = 5
	var all []byte
	for left := size; left > header; {
		n := min(left-header, 16<<10)
		record := make([]byte, header+n)
		copy(record, []byte{RecordHandshake, 3, 1, byte(n >> 8), byte(n)}) // #nosec G115 -- its low byte
		if all == nil {
			copy(record[header:], []byte{1, 0, 0xff, 0}) // a ClientHello of 65,280 bytes
		}
		all, left = append(all, record...), left-len(record)
	}
	return all
}
