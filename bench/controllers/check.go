package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"spillway/bench/rig"
	"spillway/test/framework/controlplane"
)

// connections polls which servers the controllers are connected to.
type connections struct {
	apiserver, proxy string
	processes        []*controlplane.Process

	looks     int
	forbidden int // connections to the API server
	seen      map[string]int
	failed    error
}

func (c *connections) run(ctx context.Context) {
	c.seen = map[string]int{}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		for _, p := range c.processes {
			n, err := rig.Connections(p.Pid(), c.apiserver)
			c.forbidden += n
			if err != nil {
				c.failed = err
			}
			if n, err = rig.Connections(p.Pid(), c.proxy); err == nil {
				c.seen[p.Name()] = max(c.seen[p.Name()], n)
			}
		}
		c.looks++
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c *connections) tell(r *rig.Report) {
	for _, p := range c.processes {
		r.Check(c.seen[p.Name()] > 0, p.Name()+"'s connections to the proxy", "at most %d at a time", c.seen[p.Name()])
	}
	r.Check(c.forbidden == 0 && c.failed == nil, "connections of both to the API server",
		"%d in %d looks at /proc (error: %v)", c.forbidden, c.looks, c.failed)
}

// bad is what must not be in a log.
var bad = regexp.MustCompile(`panic|BUG|goroutine \d+ \[|DATA RACE|fatal error`)

// klogError is an error line of a controller; its source says what kind.
var klogError = regexp.MustCompile(`^E\d{4} \S+\s+\d+ (\S+\.go:\d+)\] (.*)`)

// checkLogs reads what the controllers and the proxy had to say.
func (s *show) checkLogs() {
	for _, program := range []string{"kube-controller-manager", "kube-scheduler"} {
		text, err := os.ReadFile(filepath.Join(s.cp.Dir(), program+".log"))
		if err != nil {
			s.report.Check(false, program+"'s log", "%v", err)
			continue
		}
		lines := strings.Split(string(text), "\n")
		panics, errors := 0, map[string]int{}
		sample := map[string]string{}
		for _, line := range lines {
			if bad.MatchString(line) {
				panics++
				rig.Say("%s: %s", program, line)
			}
			if m := klogError.FindStringSubmatch(line); m != nil {
				errors[m[1]]++
				sample[m[1]] = m[2]
			}
		}
		s.report.Check(panics == 0, program+"'s log", "%d lines, %d with a panic or the like", len(lines), panics)
		for _, source := range slices.Sorted(maps.Keys(errors)) {
			s.report.Note(program+"'s errors", "%d × %s, such as %.200s", errors[source], source, sample[source])
		}
	}
}

// checkProxy reads the proxy's log and metrics.
func (s *show) checkProxy(ctx context.Context) {
	panics := 0
	for _, line := range s.proxy.Log.Lines() {
		if bad.MatchString(line.Text) {
			panics++
		}
		if line.Level == "error" || line.Level == "warn" || line.Level == "" {
			s.report.Note("proxy's log", "%.300s", line.Text)
		}
	}
	s.report.Check(panics == 0, "proxy's log", "levels %v, %d lines with a panic or the like", s.proxy.Log.Levels(),
		panics)
	const cached, streams, ends, through, crashed = "spillway_cached_requests_total", "spillway_watches",
		"spillway_watch_terminations_total", "spillway_passthrough_requests_total", "spillway_panics_total"
	const inFlight = "spillway_passthrough_requests_in_flight"
	m, err := s.proxy.Metrics().Read(ctx, cached, streams, ends, through, crashed, inFlight, "spillway_mirror_state",
		"spillway_upstream_lists_total")
	if err != nil {
		s.report.Check(false, "proxy's metrics", "%v", err)
		return
	}
	s.report.Check(m.Sum(crashed) == 0, "requests that ran into a bug", "%s = %.0f", crashed, m.Sum(crashed))
	s.report.Check(m.Sum(streams) > 0, "watches from memory", "%.0f open, of %d resources; ended: %v", m.Sum(streams),
		positive(m.By(streams, "resource")), m.By(ends, "reason"))
	s.report.Note("requests from memory", "%v", m.By(cached, "verb"))
	lists, watches := m.By(cached, "encoding"), m.By(streams, "encoding")
	s.report.Check(*contentType != protobuf || lists["protobuf"] > 0 && watches["protobuf"] > 0, "in protobuf from memory",
		"answers %v, open watches %v", lists, watches)
	s.report.Note("requests passed through", "%v; open: %v; by code: %v", m.By(through, "kind"), m.By(inFlight, "kind"),
		m.By(through, "code"))
	s.report.Note("mirrors", "%.0f, listed %.0f times", m.Sum("spillway_mirror_state", "state", "synced"),
		m.Sum("spillway_upstream_lists_total"))
	if usage, err := s.proxy.Usage(); err == nil {
		s.report.Note("proxy used", "%s of CPU, %s of memory", usage.CPU, fmt.Sprintf("%d MiB", usage.RSS>>20))
	}
}

func positive(m map[string]float64) int {
	n := 0
	for _, v := range m {
		if v > 0 {
			n++
		}
	}
	return n
}
