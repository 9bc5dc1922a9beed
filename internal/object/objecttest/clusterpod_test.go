package objecttest

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestPodIsAsLargeAsItSays(t *testing.T) {
	seen := map[string]bool{}
	for n := range 500 {
		raw := ClusterPod(n)
		var p struct{ Metadata struct{ Name string } }
		if err := json.Unmarshal(raw, &p); err != nil || bytes.Contains(raw, []byte("$")) {
			t.Fatalf("%v in %s", err, raw)
		}
		if len(raw) < 3<<10 || len(raw) > 4<<10 {
			t.Fatalf("pod %d has %d bytes", n, len(raw))
		}
		seen[p.Metadata.Name] = true
	}
	if len(seen) != 500 {
		t.Fatalf("%d names for 500 pods", len(seen))
	}
}
