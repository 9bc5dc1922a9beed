package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
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

// readRefusal is why a review is not decoded that could not be read to its end.
func readRefusal(err error) *refusal {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errLate
	}
	return &refusal{http.StatusBadRequest, "its review could not be read: " + err.Error()}
}

// reviewText is the text of a review, or its head if that is all that was read.
type reviewText struct {
	bytes []byte
	held  int64 // of memoryBounds.text
}

// receive reads a review. After an error it returns the head. ctx ends when r's connection reaches
// its deadline for reads.
func (m memoryBounds) receive(ctx context.Context, r *http.Request) (reviewText, error) {
	length := r.ContentLength // -1: unknown
	head := make([]byte, headBytes)
	if length >= 0 {
		head = head[:min(length, headBytes)]
	}
	n, err := io.ReadFull(r.Body, head)
	head = head[:n]
	switch {
	case isEnd(err), err == nil && int64(n) == length:
		return reviewText{bytes: head}, nil
	case err != nil:
		return reviewText{bytes: head}, readRefusal(err)
	case length > reviewLimitBytes:
		return reviewText{bytes: head}, errLong
	}
	room := length
	if length < 0 {
		room = reviewLimitBytes
	}
	if m.text.Acquire(ctx, room) != nil {
		return reviewText{bytes: head}, errBusy
	}
	whole, err := readRest(r.Body, head, room)
	if err != nil {
		m.text.Release(room)
		return reviewText{bytes: head}, err
	}
	return reviewText{whole, room}, nil
}

// readRest reads what follows a head, up to limit bytes with it.
func readRest(body io.Reader, head []byte, limit int64) ([]byte, error) {
	whole := append(make([]byte, 0, limit), head...)[:limit]
	n, err := io.ReadFull(body, whole[len(head):])
	switch {
	case isEnd(err):
		return whole[:len(head)+n], nil
	case err != nil:
		return nil, readRefusal(err)
	}
	if more, _ := body.Read(make([]byte, 1)); more > 0 { // a body of unknown length may be longer
		return nil, errLong
	}
	return whole, nil
}

// isEnd reports that a body has ended.
func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

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
	minTimeout = time.Second
	maxTimeout = 10 * time.Second // also of a webhook whose configuration sets none
)

// waitTimeout is how long a review may take to arrive and to wait: half of the time for which the
// API server waits for the answer. It gives that in the query.
func waitTimeout(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil {
		timeout = maxTimeout
	}
	return max(min(timeout, maxTimeout), minTimeout) / 2
}
