package auth

import (
	"container/list"
	"time"
)

// Answer is the API server's answer to a review, or why there is none, and when the review was
// sent. Ages count from there: what changed upstream while the answer was on its way is not in it.
type Answer[A any] struct {
	Value A
	Err   error
	At    time.Time
}

// AnswerCache keeps answers until they are too old, or too many: then the oldest go first. It has
// no clock, because verifications of certificates are also recalled for other moments than the
// present. Not safe for concurrent use.
type AnswerCache[A any] struct {
	limit   int
	entries map[Digest]*list.Element
	order   *list.List // of *cacheEntry[A], in the order of Note
}

type cacheEntry[A any] struct {
	key   Digest
	until time.Time
	Answer[A]
}

// NewAnswerCache returns a cache of at most this many answers.
func NewAnswerCache[A any](limit int) *AnswerCache[A] {
	return &AnswerCache[A]{limit: limit, entries: map[Digest]*list.Element{}, order: list.New()}
}

// Recall returns the answer of a key, if it still counts.
func (m *AnswerCache[A]) Recall(key Digest, now time.Time) (Answer[A], bool) {
	e, ok := m.entries[key]
	if !ok {
		return Answer[A]{}, false
	}
	r := e.Value.(*cacheEntry[A])
	if !now.Before(r.until) {
		m.remove(e)
		return Answer[A]{}, false
	}
	return r.Answer, true
}

// Note keeps an answer until the given time.
func (m *AnswerCache[A]) Note(key Digest, a Answer[A], until, now time.Time) {
	m.Forget(key)
	if !now.Before(until) || m.limit <= 0 {
		return
	}
	for front := m.order.Front(); front != nil; front = m.order.Front() {
		if len(m.entries) < m.limit && now.Before(front.Value.(*cacheEntry[A]).until) {
			break
		}
		m.remove(front)
	}
	m.entries[key] = m.order.PushBack(&cacheEntry[A]{key, until, a})
}

// Forget drops an answer.
func (m *AnswerCache[A]) Forget(key Digest) {
	if e, ok := m.entries[key]; ok {
		m.remove(e)
	}
}

func (m *AnswerCache[A]) remove(e *list.Element) {
	delete(m.entries, e.Value.(*cacheEntry[A]).key)
	m.order.Remove(e)
}
