package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// headBytes of a review are read without waiting for room. Most reviews are shorter, and the uid
	// is in the first hundred bytes. The number of connections bounds all heads.
	headBytes = 32 << 10
	// textsLimitBytes is the room for longer texts of reviews.
	textsLimitBytes = 3 * reviewLimitBytes
	// workLimitBytes is the room for what reviews become when they are decoded.
	workLimitBytes = weightLimitBytes
)

// memoryBounds bounds the memory of all reviews together, in bytes. There is no deadlock: a review
// that waits for text holds nothing, one that waits for work holds text, and one that holds work
// waits for nothing.
type memoryBounds struct{ text, work *semaphore.Weighted }

func newMemoryBounds() memoryBounds {
	return memoryBounds{semaphore.NewWeighted(textsLimitBytes), semaphore.NewWeighted(workLimitBytes)}
}

// refusal is why a review is not decoded.
type refusal struct {
	code int // of HTTP, if there is no review to answer
	text string
}

func (r *refusal) Error() string { return r.text }

var (
	errBusy = &refusal{http.StatusTooManyRequests, "there are too many large reviews at a time"}
	errLate = &refusal{http.StatusRequestTimeout, "its review did not arrive in time"}
	errLong = &refusal{http.StatusRequestEntityTooLarge,
		fmt.Sprintf("its review is longer than %d bytes", reviewLimitBytes)}
)

// reviewText is the text of a review, or its head if that is all that was read.
type reviewText struct {
	bytes []byte
	held  int64 // of memoryBounds.text
}

// receive reads a review. After an error it returns the head. ctx ends when r's connection reaches
// its deadline for reads.
func (m memoryBounds) receive(ctx context.Context, r *http.Request) (reviewText, error) {
	size := r.ContentLength
	head := make([]byte, headBytes)
	if size >= 0 {
		head = head[:min(size, headBytes)]
	}
	n, err := io.ReadFull(r.Body, head)
	head = head[:n]
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err == nil && int64(n) == size:
		return reviewText{bytes: head}, nil
	case err != nil:
		return reviewText{bytes: head}, errLate
	case size > reviewLimitBytes:
		return reviewText{bytes: head}, errLong
	case size < 0:
		size = reviewLimitBytes
	}
	if m.text.Acquire(ctx, size) != nil {
		return reviewText{bytes: head}, errBusy
	}
	whole := append(make([]byte, 0, size), head...)[:size]
	rest, err := io.ReadFull(r.Body, whole[n:])
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = nil
	case err != nil:
		err = errLate
	default: // a body of unknown length may be longer
		if more, _ := r.Body.Read(make([]byte, 1)); more > 0 {
			err = errLong
		}
	}
	if err != nil {
		m.text.Release(size)
		return reviewText{bytes: head}, err
	}
	return reviewText{whole[:n+rest], size}, nil
}

// release gives back what a text holds of m.text.
func (m memoryBounds) release(t reviewText) {
	if t.held > 0 {
		m.text.Release(t.held)
	}
}

// discard reads the rest of a request: a connection that is closed with unread bytes is reset, and
// the client could not read the answer.
func discard(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }

// uidField finds the uid, a UUID, with which the API server begins the request in a review.
var uidField = regexp.MustCompile(`^\s*\{[^{}]*"request"\s*:\s*\{\s*"uid"\s*:\s*"([^"\\]{1,128})"`)

// uidOf is the uid in the head of a review; empty: the head has none.
func uidOf(head []byte) types.UID {
	if found := uidField.FindSubmatch(head[:min(len(head), headBytes)]); found != nil {
		return types.UID(found[1])
	}
	return ""
}

const (
	defaultTimeout = 10 * time.Second // of a webhook whose configuration sets none
	minTimeout     = time.Second
)

// waitTimeout is how long a review may take to arrive and to wait: half of the time for which the
// API server waits for the answer. It gives that in the query.
func waitTimeout(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil {
		timeout = defaultTimeout
	}
	return max(min(timeout, defaultTimeout), minTimeout) / 2
}
