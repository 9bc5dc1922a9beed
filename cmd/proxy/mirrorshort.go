package main

import (
	"context"
	"math"
	"time"

	"spillway/internal/codec"
	states "spillway/internal/mirror"
)

// What mirrors do without while memory is short, each by itself.

// forgoEncodings keeps nothing of objects in other encodings than upstream's JSON, and keepEncodings keeps it again.
func (m *mirrors) forgoEncodings() { m.memo.Forgo(codec.Encodes) }
func (m *mirrors) keepEncodings()  { m.memo.Forgo(nil) }

// forgoSegments keeps hardly anything of what was compressed, and keepSegments keeps it again. Not nothing at all: what a herd of equals asks
// for is little, and to compress it anew for each of them would cost more than it gives.
func (m *mirrors) forgoSegments() { m.memo.Bound(m.leastForms) }
func (m *mirrors) keepSegments()  { m.memo.Bound(math.MaxInt64) }

// shorten keeps no more history of anything than clients need to come back.
func (m *mirrors) shorten() {
	for _, one := range m.all() {
		one.resource.Shorten(true)
	}
}

// lengthen lets history grow again.
func (m *mirrors) lengthen() {
	for _, one := range m.all() {
		one.resource.Shorten(false)
	}
}

// save lets feeds of few streams keep nothing.
func (m *mirrors) save() { m.economize(true) }

// spend lets them keep frames again.
func (m *mirrors) spend() { m.economize(false) }

func (m *mirrors) economize(on bool) {
	for _, one := range m.all() {
		one.hub.Economize(on)
	}
}

// firstWait is how long a first state keeps others waiting.
const firstWait = 15 * time.Second

// queue waits for a place to be mirrored. It is given back when the first state is there, or does not come.
func (m *mirrors) queue(ctx context.Context, one *mirror) {
	if m.first == nil {
		return
	}
	select {
	case m.first <- struct{}{}:
	case <-ctx.Done():
		return
	}
	m.active.Go(func() {
		defer func() { <-m.first }()
		ctx, cancel := context.WithTimeout(ctx, firstWait)
		defer cancel()
		for {
			changed := one.resource.Changed()
			if one.resource.Ready() || one.resource.Retired() {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
}

// restless is how long nobody has asked for a resource that is given up while memory is short.
const restless = time.Minute

// retreat gives up what was to be mirrored on demand and has no state yet, however much of it has arrived: how much more there is, nobody
// knows. Those that nobody has asked for lately go, too.
func (m *mirrors) retreat() {
	m.dropIdleSince(time.Now().Add(-restless))
	m.mu.Lock()
	defer m.mu.Unlock()
	for gvr, one := range *m.running.Load() {
		if m.isNamed(gvr) || one.resource.Ready() {
			continue
		}
		m.remove(one)
		m.dismiss(one, states.Cause{Why: states.WhyMemory, Text: "memory is short"})
		one.end()
	}
}

// turnAway reports that there is no memory for another mirror: its requests pass through.
func (m *mirrors) turnAway() bool {
	full := m.full.Load()
	if full {
		m.turned.Add(1)
	}
	return full
}
