package stuck

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/test/framework/process"
)

// stopDir is the environment variable with the folder of the files that stop the loops of a faulty
// proxy.
const stopDir = "STOP_DIR"

// stop is source text that stops the goroutine that comes to it, forever, once there is a file.
func stop(loop string) string {
	return `if _, err := os.Stat(os.Getenv("` + stopDir + `") + "/` + loop + `"); err == nil { select {} }` + "\n"
}

// stopped are the faults of a proxy whose loops can be stopped.
var stopped = []process.Fault{
	{
		File: "internal/upstream/loop.go",
		Old:  "\t\t\terr = l.apply(ctx, e)\n", New: stop("mirror") + "\t\t\terr = l.apply(ctx, e)\n",
	},
	{File: "internal/upstream/loop.go", Old: "import (\n", New: "import (\n\t\"os\"\n"},
	{File: "internal/fanout/hub.go", Old: "\th.countEvaluations(len(feeds))\n",
		New: stop("dispatcher") + "\th.countEvaluations(len(feeds))\n"},
	{File: "internal/fanout/hub.go", Old: "import (\n", New: "import (\n\t\"os\"\n"},
	{File: "internal/watch/writer.go", Old: "\t\tif w.runTurns() {\n", New: stop("writer") + "\t\tif w.runTurns() {\n"},
	{File: "internal/watch/writer.go", Old: "import (\n", New: "import (\n\t\"os\"\n"},
}

// Each loop that a planted fault stops is named within its bound, in the log, the metrics, /readyz
// and /statusz; the answers of a mirror that does not move have their age; and SIGTERM ends the
// process though the loop never ends.
func TestLoopsThatDoNotMoveAreNamed(t *testing.T) {
	w := newWorld(t)
	binary := process.BuildFaultyProxy(t, stopped...)
	for loop, bound := range map[string]time.Duration{
		"mirror": 2 * time.Second, "dispatcher": 5 * time.Second, "writer": 5 * time.Second,
	} {
		t.Run(loop, func(t *testing.T) {
			w.t = t
			dir := t.TempDir()
			t.Setenv(stopDir, dir)
			s := start(t, binary, "--kubeconfig="+w.cp.Kubeconfig(self), "--listen-identity=self")
			events := s.events()
			w.write("before-" + loop)
			if !arrives(events, "before-"+loop, process.Patience) {
				t.Fatal("no event while all is well")
			}
			must(t, os.WriteFile(filepath.Join(dir, loop), nil, 0o600))
			w.write("after-" + loop)
			began := time.Now()
			name := "[!]loop " + loop
			process.Awaiting(t, "the loop to be named", func(context.Context) error {
				if a := s.get(s.metrics + "/readyz?verbose"); a.code != http.StatusOK || !strings.Contains(a.body, name) {
					return fmt.Errorf("%d %s", a.code, a.body)
				}
				return nil
			})
			if took := time.Since(began); took > bound+late {
				t.Errorf("named after %v, its bound is %v", took, bound)
			}
			if n := s.metric(`spillway_stalled_loops{loop="` + loop + `"`); n != 1 {
				t.Errorf("%d of them are stalled", n)
			}
			if a := s.get(s.metrics + "/statusz?format=json"); !strings.Contains(a.body, `"stalledLoops"`) {
				t.Errorf("/statusz: %d %.500s", a.code, a.body)
			}
			if len(s.log.entries("a loop does not move")) == 0 {
				t.Error("no line")
			}
			if a := s.get(s.url + configMaps + "?resourceVersion=0"); a.code != http.StatusOK ||
				(a.age >= 0) != (loop == "mirror") {
				t.Errorf("%d, age %d", a.code, a.age)
			}
			if err := s.terminates(); err == nil {
				t.Error("it ended as if its loop had")
			}
		})
	}
}
