package config

import "testing"

// A budget lowers what was not set, and nothing that was; a large one changes nothing.
func TestBudgetLowersLimits(t *testing.T) {
	type limits struct {
		encoded, history, list                     ByteSize
		body                                       int64
		watches, watchesPerUser, connectionsAtMost int
		terms, termsPerUser                        int
	}
	f := func(budget int64, want limits, args ...string) {
		t.Helper()
		got := start(nil, args...)
		if got.options == nil {
			t.Fatalf("%v: %s", args, got.stderr)
		}
		o := got.options
		o.lowerTo(budget)
		l := limits{o.EncodingCacheBytes, o.HistoryBytes, o.Limits.ListBytes, o.Limits.BodyBytes, o.Limits.Watches,
			o.Limits.WatchesPerUser, o.MaxConnections, o.Limits.AllSelectorTerms(),
			o.Limits.SelectorTermsPerUser}
		if l.connectionsAtMost <= want.connectionsAtMost { // what open files allow may be less
			l.connectionsAtMost = want.connectionsAtMost
		}
		if l != want {
			t.Errorf("%d, %v:\ngot  %+v\nwant %+v", budget, args, l, want)
		}
	}
	const mi = 1 << 20
	f(512*mi, limits{64 * mi, 64 * mi, 256 * mi, 32 * mi, 32768, 16384, 8192, 512 << 10, 128 << 10})
	f(64*mi, limits{8 * mi, 8 * mi, 32 * mi, 4 * mi, 4096, 2048, 1024, 64 << 10, 32 << 10})
	f(1<<40, limits{256 * mi, 64 * mi, 1 << 30, 1 << 36, 100_000, 50_000, 1 << 20, 1 << 20, 128 << 10})
	file := writeFile(t, "conf.yaml", fileStart+"encodingCacheBytes: 300Mi\nmaxWatches: 0\n")
	f(64*mi, limits{300 * mi, 200 * mi, 32 * mi, 4 * mi, 0, 2048, 1024, 64 << 10, 32 << 10}, "--config="+file,
		"--history-bytes=200Mi")
}
