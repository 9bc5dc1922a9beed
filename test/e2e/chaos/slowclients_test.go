package chaos

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// slowClients are clients that request much and read little of it, or nothing.
type slowClients struct {
	conns   []*tls.Conn
	gone    chan struct{}
	reading sync.WaitGroup
}

// newSlowClients opens n watches of everything. They read a byte now and then, or none.
func newSlowClients(e endpoint, n int, read bool) (*slowClients, error) {
	s := &slowClients{gone: make(chan struct{})}
	for i := range n {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp4", strings.TrimPrefix(e.url, "https://"),
			&tls.Config{InsecureSkipVerify: true}) // the proxy makes itself a certificate
		if err != nil {
			return s, nil // a refused client is no burden
		}
		_ = conn.NetConn().(*net.TCPConn).SetReadBuffer(4 << 10)
		s.conns = append(s.conns, conn)
		path := collectionPath(resources[i%len(resources)], "")
		if _, err := fmt.Fprintf(conn, "GET %s?watch=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n", path,
			e.token); err != nil {
			continue
		}
		if read {
			s.reading.Go(func() {
				buf := make([]byte, 16)
				for {
					if _, err := conn.Read(buf); err != nil {
						return
					}
					select {
					case <-s.gone:
						return // what is decrypted already would last for long
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
		}
	}
	return s, nil
}

func (s *slowClients) leave() {
	close(s.gone)
	for _, conn := range s.conns {
		_ = conn.NetConn().Close() // without a word, which would have to wait for room
	}
	s.reading.Wait()
}
