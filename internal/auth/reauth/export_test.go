package reauth

// What tests outside the package compare with.
const (
	DefaultSweep    = defaultSweep
	DefaultHoldMost = defaultHoldTimeout
	Grace           = grace
)

// Asks is how many credentials and permissions are reviewed.
func (r *Reauthorizer) Asks() (credentials, permissions int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.schedule.credentials), len(r.mu.schedule.permissions)
}

// Hold keeps the schedule, which Run waits for once it is woken, until release is called.
func (r *Reauthorizer) Hold() (release func()) {
	r.mu.Lock()
	r.notify()
	return r.mu.Unlock
}
