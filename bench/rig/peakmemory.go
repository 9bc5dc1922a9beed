package rig

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// PeakMemory is the most memory that was seen while a server was looked at.
type PeakMemory struct {
	Total int64 // of RSS and TCP at one moment
	RSS   int64 // of the process at that moment
	TCP   int64 // of the kernel at that moment, for all TCP sockets of this machine: both ends of every connection
	Own   int64 // most kernel memory of its control group's sockets; 0 if unknown
	Looks int
}

// peakEvery is how often a server is looked at.
const peakEvery = 100 * time.Millisecond

// WatchPeak looks at a process, and at its control group if it has one, every 100 ms until stop is
// called, which returns the peak.
func WatchPeak(pid int, group *Cgroup) (stop func() (PeakMemory, error)) {
	var peak PeakMemory
	var failed error
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(peakEvery)
		defer tick.Stop()
		for failed == nil {
			failed = peak.look(pid, group)
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	return sync.OnceValues(func() (PeakMemory, error) {
		close(done)
		looking.Wait()
		return peak, failed
	})
}

func (p *PeakMemory) look(pid int, group *Cgroup) error {
	rss, err := ResidentOf(pid)
	if err != nil {
		return err
	}
	tcp, err := KernelTCP()
	if err != nil {
		return err
	}
	if group != nil {
		if own, ok := group.KernelTCP(); ok {
			p.Own = max(p.Own, own)
		}
	}
	p.Looks++
	if rss+tcp > p.Total {
		p.Total, p.RSS, p.TCP = rss+tcp, rss, tcp
	}
	return nil
}

// ResidentOf is the RSS of a process: the second field of /proc/<pid>/statm, in pages.
func ResidentOf(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/statm: %q", pid, text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * pageSize, err
}
