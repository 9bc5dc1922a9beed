package h2

import (
	"crypto/tls"
	"slices"

	"golang.org/x/net/http2"
)

// sendSettings sends the first frames: settings, and the window of the connection. New calls it
// without mu: no other goroutine has the connection yet.
func (c *Conn) sendSettings() {
	if why := weakTLS(c.tlsState()); why != "" {
		_ = c.framer.WriteGoAway(0, http2.ErrCodeInadequateSecurity, []byte(why))
		c.goAwaySent, c.goAwayCode = true, http2.ErrCodeInadequateSecurity
		c.closeWhenIdleLocked()
		return
	}
	c.unacked++
	_ = c.framer.WriteSettings( // into memory, like all frames
		http2.Setting{ID: http2.SettingMaxFrameSize, Val: minFrame},
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: c.opts.MaxStreams},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: c.opts.headerListBytes()},
		http2.Setting{ID: http2.SettingHeaderTableSize, Val: tableSize},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: c.opts.Window},
		http2.Setting{ID: http2.SettingNoRFC7540Priorities, Val: 1},
	)
	if !c.isUnprovenLocked() {
		c.openWindowLocked()
	}
	c.notifySenderLocked()
}

// openWindowLocked lets the client send as much as the windows of all its streams allow. Until then
// a connection has the window that every connection begins with.
func (c *Conn) openWindowLocked() {
	c.creditConnLocked(max(int(c.opts.Window*c.opts.MaxStreams)-firstWindow, 0))
}

// weakTLS says what is wrong with a connection's TLS (RFC 9113, section 9.2), "" if nothing is.
func weakTLS(state *tls.ConnectionState) string {
	switch {
	case state == nil || state.Version >= tls.VersionTLS13:
	case state.Version < tls.VersionTLS12:
		return "TLS version too low"
	case !slices.Contains(allowedCipherSuites, state.CipherSuite):
		return "Prohibited TLS 1.2 Cipher Suite: " + tls.CipherSuiteName(state.CipherSuite)
	}
	return ""
}

// allowedCipherSuites are those of crypto/tls for TLS 1.2 that RFC 9113, appendix A, does not
// prohibit.
var allowedCipherSuites = []uint16{
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
}

// settingsLimit is how many settings a frame may have. No honest client sends more.
const settingsLimit = 100

// applySettingsLocked takes the client's settings, or its acknowledgement of ours.
func (c *Conn) applySettingsLocked(f *http2.SettingsFrame) error {
	if f.IsAck() {
		if c.unacked--; c.unacked < 0 {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		return nil
	}
	if f.NumSettings() > settingsLimit || f.HasDuplicates() {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if err := f.ForeachSetting(c.applySettingLocked); err != nil {
		return err
	}
	c.checkFloodLocked()
	_ = c.framer.WriteSettingsAck()
	c.notifySenderLocked()
	return nil
}

func (c *Conn) applySettingLocked(s http2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case http2.SettingHeaderTableSize:
		c.encoder.SetMaxDynamicTableSize(s.Val)
	case http2.SettingMaxFrameSize:
		c.maxFrame = int(min(s.Val, maxFrame))
	case http2.SettingInitialWindowSize:
		return c.setInitialWindowLocked(int64(s.Val))
	case http2.SettingNoRFC7540Priorities:
		if s.Val > 1 {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
	}
	return nil
}
