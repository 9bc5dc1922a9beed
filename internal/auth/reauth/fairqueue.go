package reauth

// fairQueue holds the checks that are due, in one queue for each user. Users take turns, and a
// user's checks start in the order in which they came due. It has no lock: it is part of a
// reviewSchedule.
//
// A check starts only if its user has fewer under way than are free (a dynamic threshold, as shared
// buffers of switches have it): one user occupies half of the limit, a second one half of what
// remains. So users whose reviews never end leave room for others, and no weight has to be
// configured.
//
// client-go's work queues know no users. flowcontrol.Gate does, but needs a goroutine for each that
// waits.
type fairQueue struct {
	users    map[string]*userQueue // those with a check that is due or under way
	turns    []*userQueue          // those with a check that is due; the first has the next turn
	underway int                   // checks under way
}

// userQueue is the checks of one user.
type userQueue struct {
	name     string
	due      []*check // some may have lost their last watch meanwhile
	underway int
}

// push adds a check that is due.
func (q *fairQueue) push(c *check) {
	u := q.users[c.who.Name()]
	if u == nil {
		u = &userQueue{name: c.who.Name()}
		q.users[u.name] = u
	}
	c.queue = u // its credential may prove another user before it is done
	if u.due = append(u.due, c); len(u.due) == 1 {
		q.turns = append(q.turns, u)
	}
}

// next is the check that starts now, of at most limit under way; nil: none does. A user that may
// not start one loses this turn: its checks under way are as many as are free, or more.
func (q *fairQueue) next(limit int) *check {
	for n := len(q.turns); n > 0 && q.underway < limit; n-- {
		u := q.turns[0]
		q.turns[0], q.turns = nil, q.turns[1:]
		var c *check
		if u.underway < limit-q.underway {
			c = u.pop()
		}
		if len(u.due) > 0 {
			q.turns = append(q.turns, u)
		}
		if c != nil {
			u.underway++
			q.underway++
			return c
		}
		q.forget(u)
	}
	return nil
}

// pop takes the first check that a watch still depends on; nil: none is.
func (u *userQueue) pop() *check {
	for len(u.due) > 0 {
		c := u.due[0]
		u.due[0], u.due = nil, u.due[1:]
		if c.InHeap() {
			return c
		}
	}
	return nil
}

// done notes the end of a check that next started.
func (q *fairQueue) done(c *check) {
	c.queue.underway--
	q.underway--
	q.forget(c.queue)
	c.queue = nil
}

// forget drops a user without checks.
func (q *fairQueue) forget(u *userQueue) {
	if len(u.due) == 0 && u.underway == 0 {
		delete(q.users, u.name)
	}
}
