package auth

import (
	"container/list"
	"time"
)

// answer is what upstream said, or why it did not, and when it was asked. Ages count from the question: what changed upstream while the
// answer was on its way is not in it.
type answer[A any] struct {
	value A
	err   error
	at    time.Time
}

// memory keeps answers until they are too old, or too many, in which case those that were noted first go. Not safe for concurrent use.
type memory[A any] struct {
	most    int
	entries map[digest]*list.Element
	order   *list.List // of *remembered[A], as they were noted
}

type remembered[A any] struct {
	key   digest
	until time.Time
	answer[A]
}

func newMemory[A any](most int) *memory[A] {
	return &memory[A]{most: most, entries: map[digest]*list.Element{}, order: list.New()}
}

// recall returns an answer that counts now.
func (m *memory[A]) recall(key digest, now time.Time) (answer[A], bool) {
	e, ok := m.entries[key]
	if !ok {
		return answer[A]{}, false
	}
	r := e.Value.(*remembered[A])
	if !now.Before(r.until) {
		m.remove(e)
		return answer[A]{}, false
	}
	return r.answer, true
}

// note keeps an answer until the given time.
func (m *memory[A]) note(key digest, a answer[A], until, now time.Time) {
	m.forget(key)
	if !now.Before(until) || m.most <= 0 {
		return
	}
	for front := m.order.Front(); front != nil; front = m.order.Front() {
		if len(m.entries) < m.most && now.Before(front.Value.(*remembered[A]).until) {
			break
		}
		m.remove(front)
	}
	m.entries[key] = m.order.PushBack(&remembered[A]{key, until, a})
}

func (m *memory[A]) forget(key digest) {
	if e, ok := m.entries[key]; ok {
		m.remove(e)
	}
}

func (m *memory[A]) remove(e *list.Element) {
	delete(m.entries, e.Value.(*remembered[A]).key)
	m.order.Remove(e)
}
