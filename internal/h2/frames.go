package h2

import (
	"golang.org/x/net/http2"
)

// maxSettings is how many settings a frame may have. No honest client sends more.
const maxSettings = 100

// take acts on one frame.
func (c *Conn) take(frame http2.Frame) error {
	if settings, ok := frame.(*http2.SettingsFrame); !c.greeted && (!ok || settings.IsAck()) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.alive.frameReceived()
	if !c.greeted {
		c.greeted = true
		c.mu.Lock()
		c.alive.reportBusy(false)
		c.alive.checkNow()
		c.unlockAndFlush()
	}
	switch f := frame.(type) {
	case *http2.HeadersFrame:
		return c.begin(f)
	case *http2.ContinuationFrame:
		return c.continueHead(f)
	}
	c.mu.Lock()
	defer c.unlockAndFlush()
	if c.ignores(frame.Header()) {
		if data, ok := frame.(*http2.DataFrame); ok {
			return c.discardData(data)
		}
		return nil
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.DataFrame:
		return c.data(f)
	case *http2.WindowUpdateFrame:
		return c.windowUpdate(f)
	case *http2.RSTStreamFrame:
		return c.rstStream(f)
	case *http2.PingFrame:
		c.ping(f)
	case *http2.PriorityFrame:
		if f.StreamID == f.StreamDep {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.GoAwayFrame:
		c.goAwayLocked(http2.ErrCodeNo) // as it does
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

// ignores reports the frames that do not count any more: all of them after an error, and after
// GOAWAY those of streams that came later.
func (c *Conn) ignores(h http2.FrameHeader) bool {
	return c.err != nil || c.awayCode != http2.ErrCodeNo || c.away && h.StreamID > c.last
}

// settings takes the client's, or its word that it has taken ours.
func (c *Conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		if c.unacked--; c.unacked < 0 {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		return nil
	}
	if f.NumSettings() > maxSettings || f.HasDuplicates() {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if err := f.ForeachSetting(c.setting); err != nil {
		return err
	}
	c.control()
	_ = c.framer.WriteSettingsAck()
	c.flush()
	return nil
}

func (c *Conn) setting(s http2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case http2.SettingHeaderTableSize:
		c.encoder.SetMaxDynamicTableSize(s.Val)
	case http2.SettingMaxFrameSize:
		c.maxFrame = int(min(s.Val, maxFrame))
	case http2.SettingInitialWindowSize:
		return c.setInitialWindow(int64(s.Val))
	case http2.SettingNoRFC7540Priorities:
		if s.Val > 1 {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
	}
	return nil
}

// ping answers a ping, or notes the answer to ours.
func (c *Conn) ping(f *http2.PingFrame) {
	if f.IsAck() {
		c.alive.pingAcked(f.Data)
		return
	}
	c.control()
	_ = c.framer.WritePing(true, f.Data)
	c.flush()
}

// rstStream takes a RST_STREAM frame.
func (c *Conn) rstStream(f *http2.RSTStreamFrame) error {
	if c.idle(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if s := c.streams[f.StreamID]; s != nil {
		s.close(ErrReset)
	}
	return nil
}

// idle reports that a stream has yet to be opened.
func (c *Conn) idle(id uint32) bool { return id%2 == 0 || id > c.last }
