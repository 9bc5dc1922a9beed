package config

import "testing"

func TestConnectionsWithinOpenFiles(t *testing.T) {
	f := func(files uint64, want int) {
		t.Helper()
		if got := connectionsWithin(files); got != want {
			t.Errorf("connectionsWithin(%d) = %d, want %d", files, got, want)
		}
	}
	f(0, 1)
	f(64, 1)
	f(256, 128)
	f(1024, 768)
	f(20_000, 15_000)
	f(1<<20, 786_432)
	f(unlimitedFiles, connectionsLimit)

	o := New()
	if got, most := o.Connections(), connectionsWithin(openFiles()); got != most {
		t.Errorf("by default there are %d, want %d", got, most)
	}
	o.MaxConnections = 7
	if got := o.Connections(); got != 7 {
		t.Errorf("with --max-connections=7 there are %d", got)
	}
}
