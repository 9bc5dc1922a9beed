package fuzzdiff

import (
	"testing"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// upgradeFrom is the minor before the newest.
const upgradeFrom = "1.36"

// TestUpgradeAnswers sends random requests while the API server of the minor before the newest and
// the newest stand at one address, in turns: every answer is that of one of the two.
func TestUpgradeAnswers(t *testing.T) {
	if !controlplane.Built(upgradeFrom) {
		t.Skipf("run make controlplane KUBERNETES=%s", upgradeFrom)
	}
	var balancer *process.Forwarder
	var old, newest string
	w := newWorld(t, process.BuildProxy(t), controlplane.Options{Kubernetes: upgradeFrom, FeatureGates: map[string]bool{}},
		func(urls ...string) string {
			old, newest = urls[0], urls[1]
			balancer = process.NewForwarder(t, old)
			return "https://" + balancer.Address
		})
	w.skew.Mixed = true
	f := &Fuzzer{Ways: w.ways, Workers: 48, Seed: *seed, Tally: exchange.NewTally(), Skew: w.skew}
	for number, servers := range [][]string{{old}, {old, newest}, {newest, old}, {newest}, {old}} {
		balancer.Down()
		balancer.Up(servers...)
		state := w.round(t, number)
		first := uint64(number) * perRound
		for _, finding := range f.Round(t.Context(), state, first, first+perRound) {
			t.Errorf("with %d servers at the address, in round %d: %s", len(servers), number, finding)
		}
	}
	t.Logf("seed %d: %s", *seed, f)
}
