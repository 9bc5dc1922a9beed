package h2

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// fuzzed serves a connection on which a client says all of that and leaves, after it has read all
// answers or none. Serve must return.
func fuzzed(t *testing.T, said []byte, reads bool) {
	t.Helper()
	opts := options(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/kept" {
			if s, err := w.(*Response).Keep(nil); err == nil {
				_, _ = s.Offer(make([]byte, 100_000))
				s.Conn().Flush()
				s.Park(func() {})
			}
			return
		}
		_, _ = io.Copy(w, r.Body)
		_, _ = w.Write(make([]byte, 100_000))
	})
	mine, theirs := net.Pipe()
	served := make(chan struct{})
	go func() {
		serve(theirs, opts)
		close(served)
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		if reads {
			_, _ = io.Copy(io.Discard, mine)
		}
	}()
	_ = mine.SetWriteDeadline(time.Now().Add(patience))
	if _, err := mine.Write(said); err != nil && err != io.ErrClosedPipe {
		t.Fatalf("the server does not listen: %v", err)
	}
	_ = mine.Close()
	select {
	case <-served:
	case <-time.After(patience):
		t.Fatal("Serve does not return")
	}
	<-read
}

// FuzzConn: whatever comes after the preface, a connection neither panics nor hangs, and ends when
// its client does.
func FuzzConn(f *testing.F) {
	frames := func(write func(*http2.Framer)) []byte {
		var all bytes.Buffer
		write(http2.NewFramer(&all, nil))
		return all.Bytes()
	}
	f.Add([]byte{}, true)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), true)
	f.Add(frames(func(w *http2.Framer) { _ = w.WritePing(false, [8]byte{}) }), true)
	f.Add(frames(func(w *http2.Framer) {
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get("/kept"), EndHeaders: true,
			EndStream: true})
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: get("/"), EndHeaders: true})
		_ = w.WriteDataPadded(3, true, []byte("x"), make([]byte, 10))
		_ = w.WriteRSTStream(1, http2.ErrCodeCancel)
	}), false)
	f.Fuzz(func(t *testing.T, said []byte, reads bool) {
		fuzzed(t, append([]byte(http2.ClientPreface), said...), reads)
	})
}

// get is the head of a GET, compressed by itself.
func get(path string) []byte {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"},
		{Name: ":path", Value: path}} {
		field.Sensitive = true // depends on nothing that was sent before
		_ = enc.WriteField(field)
	}
	return block.Bytes()
}

// FuzzFrames: the same of frames that are valid by themselves, in any order: each four bytes are
// one.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 1, 1, 0, 3, 1, 9, 1}, true)
	f.Add([]byte{0, 0, 0, 0, 0, 3, 0, 0, 2, 3, 200, 0, 2, 3, 1, 1, 4, 3, 0, 0, 7, 0, 0, 0}, false)
	f.Fuzz(func(t *testing.T, plan []byte, reads bool) {
		said := bytes.NewBufferString(http2.ClientPreface)
		w := http2.NewFramer(said, nil)
		_ = w.WriteSettings()
		for ; len(plan) >= 4; plan = plan[4:] {
			id, n, flag := uint32(plan[1]%16), uint32(plan[2]), plan[3]&1 == 1
			if id == 0 {
				id = 1
			}
			switch plan[0] % 12 {
			case 0, 1:
				path := "/"
				if plan[3]&2 != 0 {
					path = "/kept"
				}
				_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: get(path), EndHeaders: true,
					EndStream: flag})
			case 2:
				_ = w.WriteData(id, flag, make([]byte, n*64))
			case 3:
				_ = w.WriteDataPadded(id, flag, make([]byte, n), make([]byte, plan[3]))
			case 4:
				_ = w.WriteRSTStream(id, http2.ErrCode(n))
			case 5:
				_ = w.WriteWindowUpdate(id, (n+1)<<(plan[3]%23))
			case 6:
				_ = w.WriteWindowUpdate(0, (n+1)<<(plan[3]%23))
			case 7:
				_ = w.WriteSettings(http2.Setting{ID: http2.SettingID(plan[1]), Val: n << (plan[3] % 23)})
			case 8:
				_ = w.WritePing(flag, [8]byte{})
			case 9:
				_ = w.WritePriority(id, http2.PriorityParam{StreamDep: n})
			case 10:
				_ = w.WriteGoAway(id, http2.ErrCode(n), nil)
			case 11:
				_ = w.WriteSettingsAck()
			}
		}
		fuzzed(t, said.Bytes(), reads)
	})
}
