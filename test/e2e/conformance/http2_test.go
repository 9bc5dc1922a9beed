package conformance

import (
	"bytes"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"spillway/test/framework/exchange"
)

// testHTTP2 looks at the frames of HTTP/2: what each side says of itself, and how a watch begins
// and ends (W-1, W-136, W-194).
func (s *suite) testHTTP2(t *testing.T) {
	for _, ending := range []string{"&resourceVersion=${first}", "&resourceVersion=1", "&resourceVersion=${future}"} {
		target := s.fill(c1 + "?watch=1&timeoutSeconds=" + briefSeconds() + ending)
		var told [2]http2Stream
		for i, e := range []*endpoint{s.direct2, s.secure2} {
			told[i] = e.converse(t, target)
		}
		// A frame that is announced is memory that is held: the proxy takes the least that the protocol
		// allows.
		for i, said := range told[0].settings {
			if strings.HasPrefix(said, "[MAX_FRAME_SIZE = ") {
				told[0].settings[i] = "[MAX_FRAME_SIZE = 16384]"
			}
		}
		if s.skew != nil && !slices.Equal(told[0].settings, told[1].settings) {
			s.tally.Deviated(exchange.DevSettings)
			told[0].settings = told[1].settings
		}
		if !slices.Equal(told[0].settings, told[1].settings) {
			t.Errorf("the settings are to be %v, and are %v", told[0].settings, told[1].settings)
		}
		for i, c := range told {
			if c.headersEnd || !c.emptyEnd {
				t.Errorf("%d: %s: the head ends the stream: %t, an empty frame does: %t", i, ending, c.headersEnd, c.emptyEnd)
			}
		}
		if (len(told[0].body) > 0) != (len(told[1].body) > 0) {
			t.Errorf("%s: direct %q, proxied %q", ending, told[0].body, told[1].body)
		}
		s.show(t, "W-1 W-136 W-194", memory)
	}
}

// briefSeconds is how long a watch lasts that is to end soon, but not before it has an answer that
// the proxy may have to ask upstream for.
func briefSeconds() string {
	if late.Prompt() {
		return "1"
	}
	return "4"
}

// http2Stream is one stream of a connection, as frames.
type http2Stream struct {
	settings   []string
	headersEnd bool // the stream ended with its head
	emptyEnd   bool // it ended with an empty DATA frame
	body       []byte
}

// converse requests a target on a connection of its own and reads to the end of the stream.
func (e *endpoint) converse(t *testing.T, target string) http2Stream {
	t.Helper()
	c := e.dial(t, "h2")
	_, err := io.WriteString(c, http2.ClientPreface)
	must(t, err)
	framer := http2.NewFramer(c, c)
	must(t, framer.WriteSettings())
	must(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: e.head(t, target), EndHeaders: true,
		EndStream: true}))
	var told http2Stream
	for {
		frame, err := framer.ReadFrame()
		must(t, err)
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				told.settings = append(told.settings, settingsOf(f)...)
				must(t, framer.WriteSettingsAck())
			}
		case *http2.HeadersFrame:
			told.headersEnd = f.StreamEnded()
		case *http2.DataFrame:
			told.body = append(told.body, bytes.Clone(f.Data())...)
			if told.emptyEnd = f.StreamEnded() && len(f.Data()) == 0; f.StreamEnded() {
				return told
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			t.Fatalf("%s: %v", e.Name, f)
		}
	}
}

func settingsOf(f *http2.SettingsFrame) []string {
	var all []string
	_ = f.ForeachSetting(func(s http2.Setting) error {
		all = append(all, s.String())
		return nil
	})
	slices.Sort(all)
	return all
}

// head is a GET's head, encoded.
func (e *endpoint) head(t *testing.T, target string) []byte {
	t.Helper()
	u, err := url.Parse(e.Base)
	must(t, err)
	var out bytes.Buffer
	encoder := hpack.NewEncoder(&out)
	for _, h := range [][2]string{
		{":method", "GET"}, {":scheme", u.Scheme}, {":authority", u.Host}, {":path", target},
		{"authorization", "Bearer " + e.Config.BearerToken},
	} {
		must(t, encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	return out.Bytes()
}
