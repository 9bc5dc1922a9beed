package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"spillway/bench/rig"
)

// churnCounts counts what the clients that come and go did.
type churnCounts struct {
	visits   [32]atomic.Int64 // by index in visits
	failures atomic.Int64     // that nothing excuses
	excused  atomic.Int64     // while upstream was unreachable
}

// churn lets clients come and go until coming ends, and returns when all have gone.
func (s *show) churn(ctx, coming context.Context) {
	var clients sync.WaitGroup
	for i := range *crowd {
		clients.Go(func() { s.client(ctx, coming, i) })
	}
	clients.Wait()
}

// client pays visits until coming ends; the last one ends in its own time.
func (s *show) client(ctx, coming context.Context, i int) {
	v := &churnClient{base: s.proxy.URL, client: rig.NewHTTPClient(), random: rand.New(rand.NewPCG(2, uint64(i))),
		stay: 4 * time.Second}
	switch i % 4 {
	case 0:
		v.base, v.client = s.proxy.TLSURL, rig.NewTLSClient(s.token)
	case 1:
		v.base, v.client = s.proxy.TLSURL, rig.NewHTTP2Client(s.token)
	}
	defer v.client.CloseIdleConnections()
	for coming.Err() == nil {
		n := v.random.IntN(len(visits))
		s.lulls.visiting.RLock()
		began := time.Now()
		visiting, cancel := context.WithTimeout(ctx, patience)
		err := visits[n].pay(v, visiting)
		late := visiting.Err() != nil
		cancel()
		s.lulls.visiting.RUnlock()
		s.visitors.visits[n].Add(1)
		if ctx.Err() == nil && (err != nil || late) {
			s.failed(visits[n].name, began, fmt.Errorf("%v (took longer than %s: %t)", err, patience, late))
		}
		if v.random.IntN(4) == 0 || s.lulls.coming.Load() {
			v.client.CloseIdleConnections()
		}
	}
}

func (s *show) failed(visit string, began time.Time, err error) {
	if s.outages.excuse(began, time.Now()) {
		s.visitors.excused.Add(1)
		return
	}
	if s.visitors.failures.Add(1) <= 5 {
		rig.Say("%s: %v", visit, err)
	}
}

func (s *show) checkVisits() {
	var ways []string
	total := int64(0)
	for i, v := range visits {
		n := s.visitors.visits[i].Load()
		ways, total = append(ways, fmt.Sprintf("%d × %s", n, v.name)), total+n
	}
	s.report.Check(s.visitors.failures.Load() == 0, "visits that failed",
		"%d of %d, and %d while upstream was unreachable or had just returned",
		s.visitors.failures.Load(), total, s.visitors.excused.Load())
	s.report.Note("visits", "%s", strings.Join(ways, "; "))
}
