package clientconn

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// counted counts the writes of a connection.
type counted struct {
	net.Conn
	writes int
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes++
	return c.Conn.Write(b)
}

// TestLargeAnswersArriveInOrderAndInFewSends shows that all of a large answer arrives, in order and
// in few sends, and that a client that stops reading it stalls, in the middle of it or at its end.
func TestLargeAnswersArriveInOrderAndInFewSends(t *testing.T) {
	identity := httptest.NewUnstartedServer(nil)
	identity.StartTLS()
	defer identity.Close()
	config := &tls.Config{Certificates: identity.TLS.Certificates, DynamicRecordSizingDisabled: true}
	for _, size := range []int{1, RecordBytes, RecordBytes + 1, sealBytes, sealBytes + 1, 1<<20 + 7} {
		synctest.Test(t, func(t *testing.T) {
			near, far := pipe(t)
			count := &counted{Conn: near}
			below := &PacedConn{Conn: count}
			server := tls.Server(below, config)
			client := tls.Client(far, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a throw-away certificate
			text := make([]byte, size)
			for i := range text {
				text[i] = byte(i * 31 >> 7)
			}
			got := make(chan []byte)
			go func() {
				all := make([]byte, size)
				n, _ := io.ReadFull(client, all)
				got <- all[:n]
			}()
			if err := errors.Join(server.Handshake(), below.SetPace(time.Second, 0)); err != nil {
				t.Fatal(err)
			}
			count.writes = 0
			if n, err := NewRecordWriter(server, below).Write(text); n != size || err != nil {
				t.Fatalf("%d bytes of %d: %v", n, size, err)
			}
			if all := <-got; !bytes.Equal(all, text) {
				t.Errorf("%d bytes arrived of %d, or others", len(all), size)
			}
			if most := size/sealBytes + 1; count.writes > most {
				t.Errorf("%d bytes took %d sends", size, count.writes)
			}
			if _, err := NewRecordWriter(server, below).Write(text); !errors.Is(err, ErrStalled) {
				t.Errorf("the peer does not read %d bytes: %v", size, err)
			}
		})
	}
}
