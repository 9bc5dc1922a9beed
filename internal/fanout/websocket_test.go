package fanout

import (
	"strings"
	"testing"

	"spillway/internal/object"
)

// In a WebSocket an event has a frame of its own around it, in place of the chunk, and of the
// length that protobuf has (W-120).
func TestWebSocketFrames(t *testing.T) {
	o, err := configmaps.Parse([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a",` +
		`"resourceVersion":"7"},"data":{"k":"` + strings.Repeat("v", 200) + `"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, bare := range []object.Encoding{
		{}, {View: object.Metadata}, {Format: object.Protobuf}, {Format: object.Protobuf, View: object.Metadata},
	} {
		framed := bare
		framed.WebSocket = true
		for name, event := range map[string]func(object.Encoding) ([]byte, error){
			"an event": func(e object.Encoding) ([]byte, error) { return AppendEvent(nil, e, object.Deleted, o, 1000) },
			"a state":  func(e object.Encoding) ([]byte, error) { return AppendState(nil, e, []*object.Object{o}) },
			"an error": func(e object.Encoding) ([]byte, error) { return AppendError(nil, e, expired) },
			"a bookmark": func(e object.Encoding) ([]byte, error) {
				return AppendBookmark(nil, e, object.NewBookmark(configmaps), 9, true)
			},
		} {
			payload, opcode := string(made(event(bare))), "\x81"
			if bare.Format == object.Protobuf {
				payload, opcode = payload[4:], "\x82"
			}
			head := opcode + string([]byte{byte(len(payload))})
			if len(payload) > 125 {
				head = opcode + "\x7e" + string([]byte{byte(len(payload) >> 8), byte(len(payload))})
			}
			if got := string(made(event(framed))); got != head+payload {
				t.Errorf("%v: %s:\ngot  %q\nwant %q", bare, name, got, head+payload)
			}
		}
		if got := string(AppendEnd(nil, framed)); got != "\x88\x02\x03\xe8" {
			t.Errorf("the end is %q", got)
		}
	}
}
