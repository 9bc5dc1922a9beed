package chaos

import (
	"fmt"
	"strings"
	"testing"

	"spillway/test/framework/process"
)

// plantedRuns is by which of the usual runs a faulty proxy must have been caught.
const plantedRuns = 10

// Proxies with planted faults are caught, each by the check made for that fault. In short mode,
// only that the faults fit the sources is checked.
func TestPlantedFaultsAreCaught(t *testing.T) {
	for _, planted := range []struct {
		name   string
		fault  process.Fault
		caught []string
	}{
		{"a dropped event", process.Fault{
			File: "internal/fanout/feed.go",
			Old:  "	t, o, seen := f.selector.EventFor(&e.Event)\n	var frame []byte\n",
			New:  "	t, o, seen := f.selector.EventFor(&e.Event)\n	seen = seen && e.RV%29 != 0\n	var frame []byte\n",
		}, []string{"is missing", "a bookmark at", "does not hold"}},
		{"a repeated event", process.Fault{
			File: "internal/fanout/feed.go",
			Old: "		s := f.reserve(EventSize(o))\n" +
				"		f.addFrameEnd(e, next, len(appendDirect(s.data[:s.usedBytes], f.encoding, t, o, e.RV)))\n",
			New: "		s := f.reserve(2 * EventSize(o))\n		frames := appendDirect(s.data[:s.usedBytes], f.encoding, t, o, e.RV)\n" +
				"		if e.RV%29 == 0 {\n			frames = appendDirect(frames, f.encoding, t, o, e.RV)\n		}\n		f.addFrameEnd(e, next, " +
				"len(frames))\n",
		}, []string{"comes after", "DELETED, but the client does not hold it"}},
		{"a bookmark that overtakes", process.Fault{
			File: "internal/watch/stream.go",
			Old:  "		s.scheduleBookmark(present)\n		mark, err := s.makeBookmark(s.cursor.CompleteRV())\n",
			New:  "		s.scheduleBookmark(present)\n		mark, err := s.makeBookmark(s.cursor.CompleteRV() + 3)\n",
		}, []string{"a bookmark at", "comes after", "DELETED after"}},
		{"a stale consistent read", process.Fault{
			File: "internal/freshness/prover.go", Old: "p.resource.AwaitSnapshot(soon, fl.rv)",
			New: "p.resource.AwaitSnapshot(soon, 0)",
		}, []string{"which was acknowledged before it was asked for"}},
		{"a watch that ends by the wall clock", process.Fault{
			File: "internal/watch/monotonictime.go", Old: "time.Since(epoch)", New: "time.Now().Round(0).Sub(epoch.Round(0))",
		}, []string{"the stream ended before its time"}},
		{"a proxy that believes everybody", process.Fault{
			File: "internal/auth/authorizer.go",
			Old:  "	case s.Allowed && !s.Denied:\n",
			New:  "	case s.Allowed && !s.Denied, !s.Denied:\n",
		}, []string{"who may see nothing is shown"}},
	} {
		t.Run(planted.name, func(t *testing.T) {
			process.Planted(t, planted.fault)
			if testing.Short() {
				t.Skip("the fault fits the sources; that it is caught is seen in the long form")
			}
			binary := process.BuildFaultyProxy(t, append(stage(t), planted.fault)...)
			w := newWorld(t)
			for seed := uint64(1); seed <= plantedRuns; seed++ {
				var err error
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { _, err = w.run(t, binary, seed) })
				if err == nil {
					continue
				}
				for _, by := range planted.caught {
					if strings.Contains(err.Error(), by) {
						t.Logf("caught by seed %d: %.400s", seed, err)
						return
					}
				}
				t.Fatalf("seed %d finds something else: %v", seed, err)
			}
			t.Errorf("not caught by %d runs", plantedRuns)
		})
	}
}
