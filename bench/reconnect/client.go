package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"spillway/bench/rig"
)

// client is one that needs a state and then watches. It parses nothing and keeps nothing: what it
// receives is counted by lines, of which each event is one, because what is measured is the server.
type client struct {
	server rig.Server
	target string
	source net.IP // clients with an address each differ where users are not authenticated
	gzip   bool
	want   int // events until it has its state

	conn   net.Conn
	answer *http.Response

	tries, refused int
	cuts           []error       // refusals and cuts without Retry-After
	synced         time.Duration // since the herd began
	bytes          int64
}

// triesMost is how often a client tries, a quarter of it after it was cut.
const triesMost = 200

// sync sends requests until the client has its state, as clients do: after a refusal with
// Retry-After it waits that long, after a cut it tries again at once. What it has then is still
// open.
func (c *client) sync(ctx context.Context, began time.Time) error {
	for c.tries < triesMost {
		c.tries++
		again, err := c.attempt(ctx)
		switch {
		case err == nil && again == 0:
			c.synced = time.Since(began)
			return nil
		case err != nil:
			c.close()
			c.cuts = append(c.cuts, err)
			again = time.Second
			if len(c.cuts) > triesMost/4 {
				return err
			}
		}
		if err := rig.Sleep(ctx, again); err != nil {
			return err
		}
	}
	return fmt.Errorf("not served after %d tries", c.tries)
}

// attempt sends one request. It returns when to try again, 0 if the client has its state.
func (c *client) attempt(ctx context.Context) (again time.Duration, err error) {
	if c.conn == nil {
		if err := c.dial(ctx); err != nil {
			return 0, err
		}
	}
	request, err := http.NewRequest(http.MethodGet, c.server.URL+c.target, nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Accept", "application/json")
	if c.gzip {
		request.Header.Set("Accept-Encoding", "gzip")
	}
	if c.server.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.server.Token)
	}
	if err := request.Write(c.conn); err != nil {
		return 0, err
	}
	c.answer, err = http.ReadResponse(bufio.NewReaderSize(c.conn, 4<<10), request)
	if err != nil {
		return 0, err
	}
	switch c.answer.StatusCode {
	case http.StatusOK:
		return 0, c.read()
	case http.StatusTooManyRequests:
		c.refused++
		seconds, err := strconv.Atoi(c.answer.Header.Get("Retry-After"))
		if err != nil || seconds < 1 {
			return 0, fmt.Errorf("429 with Retry-After %q", c.answer.Header.Get("Retry-After"))
		}
		if _, err := io.Copy(io.Discard, c.answer.Body); err != nil {
			return 0, err
		}
		if c.answer.Close {
			c.close()
		}
		return time.Duration(seconds) * time.Second, nil
	}
	return 0, fmt.Errorf("answered %s", c.answer.Status)
}

func (c *client) dial(ctx context.Context) error {
	address, err := url.Parse(c.server.URL)
	if err != nil {
		return err
	}
	d := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: c.source}, Control: smallWindow},
		Config:    &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}},
	}
	conn, err := d.DialContext(ctx, "tcp4", address.Host)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends a read that nothing needs any more
	c.conn = conn
	return nil
}

// receiveBuffer is the most that the kernel holds for a client that has yet to read it. Both ends
// of a connection are on this machine and its kernel reports the sum, so what is the clients' has
// to be little; that makes it wait at the other end.
const receiveBuffer = 64 << 10

func smallWindow(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer/2)
	})
	return errors.Join(err, failed)
}

// errShort says that an answer ended before it was complete.
var errShort = errors.New("the watch ended before the state was complete")

// read counts lines until the state is complete.
func (c *client) read() error {
	_ = c.conn.SetReadDeadline(time.Now().Add(silence))
	var in io.Reader = c.answer.Body
	if c.answer.Header.Get("Content-Encoding") == "gzip" {
		zip, err := gzip.NewReader(in)
		if err != nil {
			return err
		}
		in = zip
	}
	buffer := make([]byte, 32<<10)
	for lines, next := 0, time.Now().Add(silence/2); lines < c.want; {
		n, err := in.Read(buffer)
		lines += bytes.Count(buffer[:n], []byte("\n"))
		c.bytes += int64(n)
		if lines < c.want && errors.Is(err, io.EOF) {
			return errShort
		}
		if err != nil && lines < c.want {
			return err
		}
		if now := time.Now(); now.After(next) {
			next = now.Add(silence / 2)
			_ = c.conn.SetReadDeadline(now.Add(silence))
		}
	}
	return c.conn.SetReadDeadline(time.Time{})
}

// silence is how long a server may say nothing in the middle of an answer.
const silence = 2 * time.Minute

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
