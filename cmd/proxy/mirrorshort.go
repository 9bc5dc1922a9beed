package main

import "spillway/internal/codec"

// What mirrors do without while memory is short, each by itself.

// forgoEncodings keeps nothing of objects in other encodings than upstream's JSON.
func (m *mirrors) forgoEncodings() { m.memo.Forgo(codec.Encodes) }

// forgoForms keeps nothing at all of what is made of objects.
func (m *mirrors) forgoForms() { m.memo.Forgo(codec.Anything) }

// keepForms keeps it again.
func (m *mirrors) keepForms() { m.memo.Forgo(nil) }

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

// turnAway reports that there is no memory for another mirror: its requests pass through.
func (m *mirrors) turnAway() bool {
	full := m.full.Load()
	if full {
		m.turned.Add(1)
	}
	return full
}
