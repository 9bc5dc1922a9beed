package upstream

import (
	"slices"
	"testing"

	"spillway/internal/fakeapiserver"
)

// However many mirrors need to know whether upstream serves, it is probed once a second.
func TestServesIsRequestedOnceForAll(t *testing.T) {
	s, c := apiserver(t, fakeapiserver.Options{})
	for range 100 {
		if !c.Serves(t.Context()) {
			t.Fatal("it serves")
		}
	}
	asked := slices.DeleteFunc(s.Requests(), func(r fakeapiserver.Request) bool { return r.Path != "/readyz" })
	if len(asked) > 2 {
		t.Errorf("asked %d times", len(asked))
	}
}
