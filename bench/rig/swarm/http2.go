package swarm

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sync/errgroup"
)

// startHTTP2 opens the watches, so many on each connection.
func (s *WatchSet) startHTTP2(ctx context.Context, o Options) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.AtOnce)
	conn := 0
	for targets := range slices.Chunk(o.Targets, o.PerConn) {
		token := o.token(conn)
		conn++
		group.Go(func() error {
			err := s.mux(ctx, o, targets, token)
			for tries := 1; err != nil && tries < o.Tries && ctx.Err() == nil; tries++ {
				s.tried.Add(1)
				err = s.mux(ctx, o, targets, token)
			}
			return err
		})
	}
	return group.Wait()
}

// mux opens one connection and its watches, and has it read.
func (s *WatchSet) mux(ctx context.Context, o Options, targets []string, token string) error {
	c := &muxed{swarm: s, watches: map[uint32]*muxedWatch{}, done: make(chan struct{})}
	if err := c.open(ctx, o, targets, token); err != nil {
		if c.conn != nil {
			_ = c.conn.Close()
		}
		return err
	}
	s.read(c)
	return nil
}

// muxed is one connection with many watches.
type muxed struct {
	swarm   *WatchSet
	conn    *tls.Conn
	framer  *http2.Framer
	watches map[uint32]*muxedWatch // by stream
	owed    uint32                 // bytes that have been read and not been granted again
	grants  bytes.Buffer           // what granter writes, which is sent as one
	granter *http2.Framer
	done    chan struct{}
}

// muxedWatch is one of its watches.
type muxedWatch struct {
	scanner
	owed uint32
}

// window is what a server may send ahead: more than ever piles up, so that it never waits for us.
const window = 1 << 30

// open opens the connection and its watches, and reads until all have been answered.
func (c *muxed) open(ctx context.Context, o Options, targets []string, token string) error {
	u, err := url.Parse(o.Server.URL)
	if err != nil {
		return err
	}
	var conn net.Conn
	err = o.Wire.Enter(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
		return err
	})
	if err != nil {
		return err
	}
	c.conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	c.framer = http2.NewFramer(c.conn, c.conn)
	c.framer.SetReuseFrames()
	c.granter = http2.NewFramer(&c.grants, nil)
	if err := c.conn.SetReadDeadline(time.Now().Add(dialPatience)); err != nil {
		return err
	}
	if _, err := c.conn.Write([]byte(http2.ClientPreface)); err != nil {
		return err
	}
	if err := c.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		return err
	}
	if err := c.framer.WriteWindowUpdate(0, window); err != nil {
		return err
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i, target := range targets {
		block.Reset()
		for _, field := range []hpack.HeaderField{
			{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: u.Host},
			{Name: ":path", Value: target},
			{Name: "accept", Value: o.Accept}, {Name: "authorization", Value: "Bearer " + token},
			{Name: "user-agent", Value: "swarm"},
		} {
			if err := encoder.WriteField(field); err != nil {
				return err
			}
		}
		stream := uint32(2*i + 1)
		c.watches[stream] = &muxedWatch{}
		if err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(),
			EndStream: true, EndHeaders: true}); err != nil {
			return err
		}
	}
	return c.awaitHeads(len(targets))
}

func (c *muxed) awaitHeads(n int) error {
	status := ""
	decoder := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			status = f.Value
		}
	})
	for n > 0 {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return fmt.Errorf("the head of an answer: %w", err)
		}
		head, ok := frame.(*http2.HeadersFrame)
		if !ok {
			if _, err := c.take(frame, nil); err != nil {
				return err
			}
			continue
		}
		if _, err := decoder.Write(head.HeaderBlockFragment()); err != nil {
			return err
		}
		if status != "200" || !head.HeadersEnded() || head.StreamEnded() {
			return fmt.Errorf("answered %s", status)
		}
		n--
	}
	return c.conn.SetReadDeadline(time.Time{})
}

func (c *muxed) run() {
	defer close(c.done)
	var delays []int32
	for {
		frame, err := c.framer.ReadFrame()
		if err == nil {
			delays, err = c.take(frame, delays[:0])
		}
		if err != nil {
			for range c.watches {
				c.swarm.lose(err)
			}
			return
		}
		if len(delays) > 0 {
			c.swarm.took(delays)
		}
	}
}

// take handles a frame, and adds the delays of the stamps in it.
func (c *muxed) take(frame http2.Frame, delays []int32) ([]int32, error) {
	switch f := frame.(type) {
	case *http2.DataFrame:
		now := time.Now().UnixNano()
		c.watches[f.StreamID].scan(f.Data(), func(nanos int64) { delays = append(delays, delay(now, nanos)) })
		return delays, c.grant(f)
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return delays, c.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return delays, c.framer.WritePing(true, f.Data)
		}
	case *http2.RSTStreamFrame:
		return delays, fmt.Errorf("stream %d was reset: %s", f.StreamID, f.ErrCode)
	case *http2.GoAwayFrame:
		return delays, fmt.Errorf("told to go away: %s", f.ErrCode)
	}
	return delays, nil
}

// grantAt is how many bytes are read before WINDOW_UPDATE frames grant them again, on the stream
// and on the connection. It is that of net/http's client, and so of client-go.
const grantAt = 4 << 10

// grant lets the server send on.
func (c *muxed) grant(f *http2.DataFrame) error {
	if f.StreamEnded() {
		return fmt.Errorf("stream %d ended", f.StreamID)
	}
	c.grants.Reset()
	w := c.watches[f.StreamID]
	for _, one := range []struct {
		id   uint32
		owed *uint32
	}{{0, &c.owed}, {f.StreamID, &w.owed}} {
		if *one.owed += f.Length; *one.owed >= grantAt {
			if err := c.granter.WriteWindowUpdate(one.id, *one.owed); err != nil {
				return err
			}
			*one.owed = 0
		}
	}
	if c.grants.Len() == 0 {
		return nil
	}
	_, err := c.conn.Write(c.grants.Bytes())
	return err
}

func (c *muxed) close() {
	_ = c.conn.Close()
	<-c.done
}
