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
	// headBytes of a review are read without waiting for room: most reviews are no longer, and the
	// uid is among the first hundred. What they hold together is bounded by the number of
	// connections.
	headBytes = 32 << 10
	// bodiesBytes is room for the text of longer ones, and workBytes for what reviews become when
	// they are decoded.
	bodiesBytes = 3 * reviewLimitBytes
	workBytes   = weightLimitBytes
)

// memory bounds what all reviews hold together. A review waits for text's while it holds nothing,
// and for work's while it holds text's; what holds work's waits for nothing.
type memoryBounds struct{ text, work *semaphore.Weighted }

func newMemoryBounds() memoryBounds {
	return memoryBounds{semaphore.NewWeighted(bodiesBytes), semaphore.NewWeighted(workBytes)}
}

// refusal is why a review is not looked at.
type refusal struct {
	code int // where the review cannot be answered
	text string
}

func (r *refusal) Error() string { return r.text }

// Refusals that name no input.
var (
	errBusy = &refusal{http.StatusTooManyRequests, "there are too many large reviews at a time"}
	errLate = &refusal{http.StatusRequestTimeout, "its review did not arrive in time"}
	errLong = &refusal{http.StatusRequestEntityTooLarge,
		fmt.Sprintf("its review is longer than %d bytes", reviewLimitBytes)}
)

// received is the text of a review, or its beginning where there is an error.
type received struct {
	text []byte
	held int64 // of memory.text
}

// receive reads a review as far as it may be read, until ctx ends, which is when r's connection may
// not be read any longer.
func (m memoryBounds) receive(ctx context.Context, r *http.Request) (received, error) {
	size := r.ContentLength
	head := make([]byte, headBytes)
	if size >= 0 {
		head = head[:min(size, headBytes)]
	}
	n, err := io.ReadFull(r.Body, head)
	head = head[:n]
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err == nil && int64(n) == size:
		return received{text: head}, nil
	case err != nil:
		return received{text: head}, errLate
	case size > reviewLimitBytes:
		return received{text: head}, errLong
	case size < 0:
		size = reviewLimitBytes
	}
	if m.text.Acquire(ctx, size) != nil {
		return received{text: head}, errBusy
	}
	whole := append(make([]byte, 0, size), head...)[:size]
	rest, err := io.ReadFull(r.Body, whole[n:])
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = nil
	case err != nil:
		err = errLate
	default: // a body of a known length ends here; another one may be longer
		if more, _ := r.Body.Read(make([]byte, 1)); more > 0 {
			err = errLong
		}
	}
	if err != nil {
		m.text.Release(size)
		return received{text: head}, err
	}
	return received{whole[:n+rest], size}, nil
}

// release gives back what a review holds of its text.
func (m memoryBounds) release(r received) {
	if r.held > 0 {
		m.text.Release(r.held)
	}
}

// discard reads what is left of a request, so that its client comes to read the answer: closing a
// connection with something unread resets it.
func discard(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }

// uidField is how an API server begins a review: the uid, which is a UUID, is the first of its
// request.
var uidField = regexp.MustCompile(`^\s*\{[^{}]*"request"\s*:\s*\{\s*"uid"\s*:\s*"([^"\\]{1,128})"`)

// uidOf is the uid of a review, of which there is the beginning; empty if it is not in that.
func uidOf(head []byte) types.UID {
	if found := uidField.FindSubmatch(head[:min(len(head), headBytes)]); found != nil {
		return types.UID(found[1])
	}
	return ""
}

const (
	usualTimeout    = 10 * time.Second // of a webhook that sets none
	shortestTimeout = time.Second
)

// waitTimeout is how long a review may take to arrive and to wait: half of what its API server
// waits for the answer, which it says.
func waitTimeout(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil {
		timeout = usualTimeout
	}
	return max(min(timeout, usualTimeout), shortestTimeout) / 2
}
