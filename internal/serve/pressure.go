package serve

// Outside is about how many bytes the kernel holds for clients that do not take what was sent to
// them. It is an estimate, since what a kernel reports of it is either that of a whole machine or
// takes a system call for each client.
func (s *Server) Outside() int64 { return s.eviction.KernelBytes() }

// Hasten makes the server impatient, or patient again, with clients that do not take what they
// asked for.
func (s *Server) Hasten(on bool) {
	if !s.eviction.SetAggressive(on) || !on {
		return
	}
	s.watches.LookAgain()
}

// EndSlow ends the most expensive of the large answers whose clients are too slow for a server that
// is short of memory. It is called again and again while that lasts.
func (s *Server) EndSlow() { s.eviction.EndSlow() }

// Economize lets hardly any large answers be made at the same time, or as many as usual.
func (s *Server) Economize(on bool) { s.opts.Limiter.SetLowMemory(on) }

// ShedSelectors ends the watches with heavy selectors, and lets hardly any begin, or as many as
// usual again.
func (s *Server) ShedSelectors(on bool) {
	if s.opts.Limiter == nil {
		return
	}
	s.opts.Limiter.NarrowSelectors(on)
	if on {
		s.watches.ShedHeavy()
	}
}
