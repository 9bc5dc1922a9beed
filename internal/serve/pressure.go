package serve

import "spillway/internal/memory"

// Outside is about how many bytes the kernel holds for clients that do not take what was sent to
// them. It is an estimate, since what a kernel reports of it is either that of a whole machine or
// takes a system call for each client.
func (s *Server) Outside() int64 { return s.eviction.KernelBytes() }

// Degrade makes the server refuse and evict while memory is short: it ends watches with heavy
// selectors and admits hardly any, makes large answers one after another, and evicts clients that
// read nothing, or little of a large answer, within seconds, the most expensive answer first. The
// guard calls it again and again while a step is taken.
func (s *Server) Degrade(step memory.Step) {
	short := step >= memory.RefuseAndEvict
	s.opts.Limiter.SetLowMemory(short)
	if s.eviction.SetLowMemory(short) && short {
		s.watches.ShedHeavy()
		s.watches.LookAgain()
	}
	if short {
		s.eviction.EndSlow()
	}
}
