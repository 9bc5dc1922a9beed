package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// reviewAnswerBytesLimit bounds what is read of an answer.
	reviewAnswerBytesLimit = 1 << 20
	// refusalBytesLimit bounds what is repeated of the message of a Status.
	refusalBytesLimit = 256
)

// reviewSender sends reviews upstream, and logs when the API server stops answering them. A review
// is one POST. client-go's request would repeat one that was refused with a Retry-After, for as
// long as it takes, and a late answer is none.
type reviewSender struct {
	base    *url.URL
	own     *http.Client // adds the proxy's credentials
	log     *zap.Logger
	failing atomic.Pointer[ReviewFailure] // nil: the last review was answered
}

// ReviewFailure is why the API server answers no reviews, and since when for this kind of reason.
type ReviewFailure struct {
	Since time.Time
	Err   *NotReviewedError
}

// NotReviewedError is why the API server did not answer a review, or did not send a document. It
// holds nothing of the question.
type NotReviewedError struct {
	Review string // the kind of the review, or the path of the document
	Code   int    // of the API server's answer; 0: there was none
	Reason string
}

// Error implements error.
func (e *NotReviewedError) Error() string {
	if e.Code == 0 {
		return fmt.Sprintf("%s: %s", e.Review, e.Reason)
	}
	return fmt.Sprintf("%s: upstream answered %d: %s", e.Review, e.Code, e.Reason)
}

// IsRefused reports that the API server does not permit the proxy to send the review.
func (e *NotReviewedError) IsRefused() bool {
	return e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden
}

// isGeneral reports that the failure does not depend on the question: the API server is
// unreachable, at its limits, or takes no questions of the proxy.
func (e *NotReviewedError) isGeneral() bool {
	switch e.Code {
	case 0, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
		return true
	}
	return e.Code >= http.StatusInternalServerError
}

// conceal removes a token that the API server may have repeated from a failure, if there is one.
func (e *NotReviewedError) conceal(token Secret) {
	if e != nil {
		e.Reason = strings.ReplaceAll(e.Reason, token.Reveal(), concealed)
	}
}

// Failure is why the API server answers no reviews at present; nil: it answered the last one.
func (s *reviewSender) Failure() *ReviewFailure { return s.failing.Load() }

// note takes the result of a review; nil: the API server answered it. The log says when the API
// server stops answering, when its reason becomes another one, and when it answers again.
func (s *reviewSender) note(ctx context.Context, failure *NotReviewedError) {
	before := s.failing.Load()
	if failure == nil {
		if before != nil && s.failing.CompareAndSwap(before, nil) {
			s.log.Info("upstream answers reviews again")
		}
		return
	}
	if errors.Is(ctx.Err(), context.Canceled) || !failure.isGeneral() ||
		before != nil && before.Err.IsRefused() == failure.IsRefused() ||
		!s.failing.CompareAndSwap(before, &ReviewFailure{Since: time.Now(), Err: failure}) {
		return
	}
	text := "upstream does not answer reviews of the identity of clients and of their permissions"
	if failure.IsRefused() {
		text = "upstream denies Spillway reviews of the identity of clients and of their permissions: give it the " +
			"rights of the cluster role system:auth-delegator, which the chart binds unless rbac.create is false"
	}
	s.log.Warn(text+"; clients get nothing from memory, and watches pause when they are due to be checked",
		zap.Error(failure))
}

// exchange sends a review by a client, and reads the API server's answer.
func (s *reviewSender) exchange(ctx context.Context, by *http.Client, path string, review, answer runtime.Object,
) *NotReviewedError {
	kind := review.GetObjectKind().GroupVersionKind().Kind
	body, err := json.Marshal(review)
	if err != nil {
		return &NotReviewedError{Review: kind, Reason: "the review cannot be encoded"}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return &NotReviewedError{Review: kind, Reason: err.Error()}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	code, raw, err := send(by, req)
	switch {
	case err != nil:
		return &NotReviewedError{Review: kind, Reason: err.Error()}
	case code >= http.StatusInternalServerError:
		return &NotReviewedError{Review: kind, Code: code, Reason: "it failed"} // its words may repeat the question
	case code != http.StatusCreated && code != http.StatusOK:
		return &NotReviewedError{Review: kind, Code: code, Reason: refusalOf(raw)}
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return &NotReviewedError{Review: kind, Code: code, Reason: "its answer is not a review"}
	}
	return nil
}

// Fetch reads a document of the API server's. Errors are *NotReviewedError.
func (s *reviewSender) Fetch(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, &NotReviewedError{Review: path, Reason: err.Error()}
	}
	req.Header.Set("Accept", "application/json, application/jwk-set+json")
	code, raw, err := send(s.own, req)
	switch {
	case err != nil:
		return nil, &NotReviewedError{Review: path, Reason: err.Error()}
	case code != http.StatusOK:
		return nil, &NotReviewedError{Review: path, Code: code, Reason: refusalOf(raw)}
	}
	return raw, nil
}

// send sends a request and reads its answer.
func send(by *http.Client, req *http.Request) (code int, body []byte, err error) {
	resp, err := by.Do(req)
	if err != nil {
		var e *url.Error // repeats method and URL
		if errors.As(err, &e) {
			err = e.Err
		}
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, reviewAnswerBytesLimit))
	return resp.StatusCode, body, err
}

// noRedirects keeps credentials from being sent elsewhere.
func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// refusalOf is the message of a Status, clipped. An answer that is no Status has nothing that a log
// line should repeat.
func refusalOf(raw []byte) string {
	var status metav1.Status
	if json.Unmarshal(raw, &status) != nil || status.Message == "" {
		return "without a Status"
	}
	message := strings.Join(strings.Fields(status.Message), " ")
	if len(message) > refusalBytesLimit {
		message = message[:refusalBytesLimit] + "…"
	}
	return message
}
