package readyourwrites

import (
	"flag"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
	"spillway/test/framework/relay"
)

var tries = flag.Int("tries", 2000, "how often to write and read")

const (
	workers = 24
	// plantedTries is by when a proxy that does not prove anything must have been caught.
	plantedTries = 2000
)

// A read after a write, with resourceVersion unset, finds exactly what was written, however late
// the mirror's own watch is; and some of the answers come from memory all the same (W-210, W-212).
// How many depends on how long upstream's answers take at the moment.
func TestReadYourWrites(t *testing.T) {
	cp := startControlPlane(t)
	seen := play(t, cp, process.BuildProxy(t), *tries, func(*tally) bool { return false })
	t.Log(seen)
	for i, err := range seen.staleReads() {
		if i < 10 {
			t.Error(err)
		}
	}
	if n := seen.tries.Load(); n != int64(*tries) {
		t.Errorf("%d of %d tries were made", n, *tries)
	}
	// where answers are late, LISTs are upstream's
	if late.Prompt() && seen.listsFromMemory.Load() == 0 ||
		late.String() != relay.Never && seen.watchListsFromMemory.Load() == 0 {
		t.Error("no LIST or no watch-list was answered from memory: this tests nothing")
	}
}

// The same proxy, but for taking upstream's resourceVersion for a proof that it has arrived, is
// caught.
func TestPlantedStaleness(t *testing.T) {
	cp := startControlPlane(t)
	binary := process.BuildFaultyProxy(t, process.Fault{
		File: "internal/freshness/prover.go",
		Old:  "p.resource.AwaitSnapshot(soon, fl.rv)", New: "p.resource.AwaitSnapshot(soon, 0)",
	})
	seen := play(t, cp, binary, plantedTries, func(s *tally) bool { return len(s.staleReads()) > 0 })
	t.Log(seen)
	if len(seen.staleReads()) == 0 {
		t.Error("a proxy that proves nothing was not caught")
	} else {
		t.Log("caught: ", seen.staleReads()[0])
	}
}

// A proxy that fixes the place of a watch after its head is caught.
func TestPlantedLateSnapshot(t *testing.T) {
	cp := startControlPlane(t)
	seen := play(t, cp, process.BuildFaultyProxy(t, process.LateSnapshot), plantedTries,
		func(s *tally) bool { return len(s.staleReads()) > 0 })
	if len(seen.staleReads()) == 0 {
		t.Errorf("not caught: %s", seen)
		return
	}
	t.Log("caught: ", seen.staleReads()[0])
}

func startControlPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	client, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	for i := range workers {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i)}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return cp
}

func namespaceOf(worker int) string { return fmt.Sprintf("w%d", worker) }

// play lets workers write to the API server and read through a proxy in front of a slow upstream,
// until the tries are used up or enough was seen.
func play(t *testing.T, cp *controlplane.ControlPlane, binary string, tries int, enough func(*tally) bool) *tally {
	t.Helper()
	upstream := &slowUpstream{}
	proxy := process.StartProxy(t, binary, "--kubeconfig="+upstream.kubeconfig(t, cp), "--listen-identity=self",
		"--resources=configmaps")
	players := newPlayers(t, cp.Config(controlplane.Admin), &rest.Config{Host: proxy.Plain})
	players.enough = enough
	players.strict(t)
	seen := players.play(t, tries)
	if upstream.delayed.Load() == 0 {
		t.Error("no watch was late: this tests nothing")
	}
	return seen
}
