package main

import (
	"context"
	"net"
	"sync"

	"spillway/bench/rig"
)

const (
	largeEvent = 100 << 10
	warmUp     = 300  // large events before the first measurement: 30 MiB, several times what the log may keep
	more       = 1000 // and until the second
	stallers   = 20
	historyMiB = 8
	toleratedB = 4 << 20   // of heap that may differ between two moments: the log is between half full and full
	kernelB    = 512 << 10 // per connection: TCP_NOTSENT_LOWAT, and a frame that was begun
)

// memory shows that stalled clients pin nothing that grows.
func (s *show) memory(ctx context.Context) error {
	p, err := rig.StartProxy(ctx, s.kubeconfig, "--resources="+resource, "--stall-timeout=1h", "--history-bytes=8Mi",
		"--history-min-age=1s")
	if err != nil {
		return err
	}
	defer p.Kill()
	ctx, end := context.WithCancel(ctx)
	var players sync.WaitGroup
	defer players.Wait()
	defer end()
	readers := readAll(ctx, p.URL, 1, &players)
	if _, err := s.fill(ctx, readers, warmUp); err != nil {
		return err
	}
	without, err := p.Memory(ctx)
	if err != nil {
		return err
	}
	clients, err := stallMany(ctx, p.URL, stallers, 0)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if _, err := s.fill(ctx, readers, warmUp); err != nil {
		return err
	}
	first, err := s.look(ctx, p, clients)
	if err != nil {
		return err
	}
	written, err := s.fill(ctx, readers, more)
	if err != nil {
		return err
	}
	second, err := s.look(ctx, p, clients)
	if err != nil {
		return err
	}
	s.reportMemory(without, first, second, written)
	return s.noWaits(ctx, p, "while the memory was filled")
}

// fill writes n large events, waits until the readers have them and returns how many bytes that
// was.
func (s *show) fill(ctx context.Context, readers []*reader, n int) (int64, error) {
	last, err := s.writer.write(ctx, n, largeEvent, 0)
	if err != nil {
		return 0, err
	}
	if !awaitAll(ctx, readers, last) {
		s.report.Check(false, "readers keep up", "version %d has not arrived", last)
	}
	return int64(n) * largeEvent, nil
}

// memorySample is what the proxy and the kernel hold.
type memorySample struct {
	rig.Memory
	sender, receiver uint64 // of all stalled connections
	most             uint64 // the proxy's side of one of them
	tcp              int64
}

func (s *show) look(ctx context.Context, p *rig.Proxy, clients []*rig.StalledClient) (memorySample, error) {
	var l memorySample
	var err error
	if l.Memory, err = p.Memory(ctx); err != nil {
		return l, err
	}
	addrs := make([]net.Addr, len(clients))
	for i, c := range clients {
		addrs[i] = c.Addr()
	}
	queues, err := rig.Queues(p.URL, addrs)
	if err != nil {
		return l, err
	}
	for _, q := range queues {
		l.sender += q.Sender
		l.receiver += q.Receiver
		l.most = max(l.most, q.Sender)
	}
	l.tcp, err = rig.KernelTCP()
	return l, err
}

func (s *show) reportMemory(without rig.Memory, first, second memorySample, written int64) {
	r := s.report
	r.Note("heap without stalled clients", "%s (the log may keep %d MiB)", mib(without.Heap), historyMiB)
	r.Note("heap with "+count(stallers)+" of them", "%s", mib(first.Heap))
	r.Check(second.Heap-first.Heap < toleratedB, "heap does not grow", "%s → %s while %s of events passed them by",
		mib(first.Heap), mib(second.Heap), mib(written))
	r.Check(second.RSS-first.RSS < written/4, "RSS does not grow", "%s → %s", mib(first.RSS), mib(second.RSS))
	r.Check(first.sender > 0 && second.receiver >= first.receiver, "they are stalled",
		"their kernels hold %s unread, the proxy's kernel %s for them", mib(int64(second.receiver)),
		mib(int64(second.sender)))
	r.Check(second.most <= kernelB && second.sender <= first.sender+uint64(toleratedB)/4, "kernel memory is bounded",
		"send queue of one connection at most %d KiB; of all %d → %d KiB; all TCP of this machine %s → %s",
		max(first.most, second.most)>>10, first.sender>>10, second.sender>>10, mib(first.tcp), mib(second.tcp))
}
