package clientconn

// countedBy is what counts the connection; nil: nothing does. The nil connection is counted
// nowhere.
func (c *PacedConn) countedBy() *Connections {
	if c == nil {
		return nil
	}
	return c.tracking.countedBy
}

// SetState moves the connection to a state. One over the limit, or that is not counted any more,
// keeps its own.
func (c *PacedConn) SetState(s ConnState) {
	k := c.countedBy()
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch t := &c.tracking; {
	case !t.isOpen() || t.state == s:
	case !t.proven.Load():
		k.setStateLocked(c, s)
	default:
		k.moveLocked(c, s)
	}
}

// MarkProven notes that a request has had good credentials.
func (c *PacedConn) MarkProven() {
	k := c.countedBy()
	if k == nil || c.tracking.proven.Load() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	c.tracking.proven.Store(true)
	k.requeueLocked(c)
}

// MarkLeaving notes that the connection ends with what is under way on it.
func (c *PacedConn) MarkLeaving() {
	if k := c.countedBy(); k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		c.tracking.leaving = true
		k.requeueLocked(c)
	}
}

// OnEvict sets how the connection is ended: if gently, without breaking a request; else at once.
func (c *PacedConn) OnEvict(evict func(gently bool)) {
	if k := c.countedBy(); k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		c.tracking.onEvict = evict
	}
}

// GoAway ends the connection without breaking a request, if OnEvict has set how.
func (c *PacedConn) GoAway() {
	if k := c.countedBy(); k != nil {
		k.mu.Lock()
		evict := c.tracking.onEvict
		k.mu.Unlock()
		if evict != nil {
			evict(true)
		}
	}
}

// IsOverLimit reports that there was no room for the connection, which its client is to learn.
func (c *PacedConn) IsOverLimit() bool {
	k := c.countedBy()
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.tracking.state == stateOverLimit
}

// stopCounting ends the accounting of the connection. It is idempotent.
func (c *PacedConn) stopCounting() {
	if k := c.countedBy(); k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.forgetLocked(c)
	}
}
