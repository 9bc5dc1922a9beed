package clients

import (
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
)

// replicas is an address behind which one replica after another stands, as a Service has it:
// connections stay where they are, new ones go to the present one.
type replicas struct {
	url     string
	present atomic.Pointer[string] // its address
}

func newSwitch(t *testing.T) *replicas {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	r := &replicas{url: "https://" + listener.Addr().String()}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go r.relay(c)
		}
	}()
	return r
}

func (r *replicas) to(t *testing.T, server string) {
	t.Helper()
	u, err := url.Parse(server)
	must(t, err)
	r.present.Store(&u.Host)
}

// relay copies both ways until either side has ended.
func (r *replicas) relay(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", *r.present.Load())
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, client) // ends with either
	}()
	_, _ = io.Copy(client, server)
}
