package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"spillway/bench/rig"
)

// flood is connections that do not mean well. One that is cut is opened again.
type flood struct {
	plain, tls string // addresses
	stop       context.CancelFunc
	players    sync.WaitGroup

	open, opened, cut atomic.Int64
}

func newFlood(p *rig.Proxy) *flood {
	return &flood{plain: strings.TrimPrefix(p.URL, "http://"), tls: strings.TrimPrefix(p.TLSURL, "https://")}
}

// hello is the beginning of a TLS handshake that never goes on.
const hello = "\x16\x03\x01\x20\x00\x01\x00\x1f\xfc\x03\x03"

// connBehaviour are how a connection behaves: what it sends at once, and then, a byte a second, for
// ever; nothing if that is empty.
type connBehaviour struct {
	secure    bool // with a whole TLS handshake
	tls       bool // on the TLS listener
	at, after string
}

func (f *flood) halfOpen(i int) connBehaviour {
	return []connBehaviour{{}, {tls: true}, {tls: true, at: hello}, {at: "GET /api HT"}, {tls: true, secure: true}}[i%5]
}

func (f *flood) slow(i int) connBehaviour {
	const head = "GET /api/v1/configmaps HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
	const body = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
		"application/json\r\nContent-Length: 100000\r\n\r\n"
	return []connBehaviour{
		{at: head, after: "a"}, {at: body, after: " "}, {tls: true, secure: true, at: head, after: "a"},
		{tls: true, secure: true, at: body, after: " "},
		{tls: true, at: hello, after: "\x00"},
	}[i%5]
}

// rise opens all of them, and returns when they have been opened once.
func (f *flood) rise(ctx context.Context) error {
	ctx, f.stop = context.WithCancel(ctx)
	for i := range *halfOpen {
		f.players.Go(func() { f.persist(ctx, f.halfOpen(i)) })
	}
	for i := range *slow {
		f.players.Go(func() { f.persist(ctx, f.slow(i)) })
	}
	all := int64(*halfOpen + *slow)
	if !rig.Eventually(ctx, 2*time.Minute, 50*time.Millisecond, func() bool { return f.opened.Load() >= all }) {
		return fmt.Errorf("only %d of %d connections were opened", f.opened.Load(), all)
	}
	rig.Say("%d connections were opened, %d are open", f.opened.Load(), f.open.Load())
	return nil
}

// fall closes them.
func (f *flood) fall() {
	f.stop()
	f.players.Wait()
}

// again is the delay before a connection that was cut is opened again: so long that this program,
// on the same machine, has time for the client.
const again = time.Second

func (f *flood) persist(ctx context.Context, m connBehaviour) {
	for ctx.Err() == nil {
		if f.once(ctx, m) && ctx.Err() == nil {
			f.cut.Add(1)
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// once opens one and keeps it until it is cut.
func (f *flood) once(ctx context.Context, m connBehaviour) (opened bool) {
	address := f.plain
	if m.tls {
		address = f.tls
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	f.opened.Add(1)
	f.open.Add(1)
	defer f.open.Add(-1)
	if m.secure {
		secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		if secure.HandshakeContext(ctx) != nil {
			return true
		}
		c = secure
	}
	if _, err := io.WriteString(c, m.at); err != nil {
		return true
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, c)
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return true
		case <-tick.C:
			if _, err := io.WriteString(c, m.after); err != nil {
				_ = c.Close()
				<-ended
				return true
			}
		}
	}
}
