package passthrough

import (
	"net/http"
	"time"

	"spillway/internal/apistatus"
)

// AnswerObserver follows a request on its way through, and its answer. One goroutine at a time
// calls it.
type AnswerObserver interface {
	// Propagate adds headers that name the request's trace to those that upstream gets.
	Propagate(header http.Header)
	// AnswerBegan is called when upstream's answer has begun, or will not come. It may be called more
	// than once, and not at all if Forward returns then anyway.
	AnswerBegan()
	// AnswerTook receives once how long upstream took for a whole short answer, if one came.
	AnswerTook(time.Duration)
	// Answered is called with the code of upstream's answer, or with ours in its place. It may be
	// called more than once: the first call counts.
	Answered(code int)
	// Refused is called with an answer of ours to a request that does not go upstream.
	Refused(a *apistatus.Answer)
}

// Unobserved is the observer of a request that no one observes.
type Unobserved struct{}

// Propagate implements AnswerObserver.
func (Unobserved) Propagate(http.Header) {}

// AnswerBegan implements AnswerObserver.
func (Unobserved) AnswerBegan() {}

// AnswerTook implements AnswerObserver.
func (Unobserved) AnswerTook(time.Duration) {}

// Answered implements AnswerObserver.
func (Unobserved) Answered(int) {}

// Refused implements AnswerObserver.
func (Unobserved) Refused(*apistatus.Answer) {}

// refuse answers a request that does not go upstream.
func refuse(w apistatus.Responder, o AnswerObserver, a *apistatus.Answer) {
	o.Refused(a)
	a.Write(w)
}
