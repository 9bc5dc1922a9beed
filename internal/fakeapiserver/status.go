package fakeapiserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failed is an error that is a Status: what the client gets to see (W-170).
func failed(code int, reason metav1.StatusReason, message string,
	details *metav1.StatusDetails) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
		Details: details, // #nosec G115 -- a status code
	}}
}

// statusOf is the Status of any error; what is none is a 500.
func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	if errors.As(err, &known) {
		status = known.Status()
	}
	status.Kind, status.APIVersion = "Status", "v1"
	return status
}

// tooLarge is the answer to a resourceVersion that has not come yet (W-68); events say so without
// asking to retry.
func tooLarge(asked, current uint64, retry bool) error {
	retrySeconds := 0
	if retry {
		retrySeconds = 1
	}
	message := fmt.Sprintf("Too large resource version: %d, current: %d", asked, current)
	err := apierrors.NewTimeoutError(message, retrySeconds)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

// expiredList is the answer to an exact read of a state that is gone (W-67).
func expiredList() error {
	return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
}

// expiredContinue is the same for a continue token; it brings a token that goes on inconsistently
// (W-83).
func expiredContinue(token string) error {
	err := apierrors.NewResourceExpired(
		"The provided continue parameter is too old to display a consistent list result. " +
			"You can start a new list without the continue parameter, or use the continue token in this response to " +
			"retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - " +
			"objects that were created, modified, or deleted between the time the first chunk was returned and now may " +
			"show up in the list.")
	err.ErrStatus.ListMeta.Continue = token
	return err
}

// expiredWatch is the in-stream answer to a watch from below the history (W-107).
func expiredWatch(r *Resource, asked, floor uint64) error {
	if r.Uncached {
		return apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.")
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", asked, floor))
}

func methodNotAllowed() error {
	return failed(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource", &metav1.StatusDetails{})
}

// wished is the error that FailLists, FailProbes and FailWatches ask for.
func wished(code int) error {
	reasons := map[int]metav1.StatusReason{
		http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusGone: metav1.StatusReasonExpired,
		http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError: metav1.StatusReasonInternalError,
		http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
		http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
	}
	var details *metav1.StatusDetails
	message := "the test wants status " + strconv.Itoa(code)
	if code == http.StatusTooManyRequests {
		message, details = "storage is (re)initializing", &metav1.StatusDetails{RetryAfterSeconds: 1} // W-72
	}
	return failed(code, reasons[code], message, details)
}

// resourceNotFound is the 404 of a known group and version (W-172).
func resourceNotFound(w http.ResponseWriter, r *http.Request) {
	writeError(w, r, failed(http.StatusNotFound, metav1.StatusReasonNotFound,
		"the server could not find the requested resource", &metav1.StatusDetails{}))
}

// pageNotFound is the 404 of everything else (W-172).
func pageNotFound(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusNotFound, "404 page not found\n")
}

// requestTimeout is the 504 of a request that took too long (W-176).
func requestTimeout(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusGatewayTimeout)
	_, _ = io.WriteString(w,
		`{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout",`+
			`"reason":"Timeout","details":{},"code":504}`+"\n")
}

func plain(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body)
}

// writeError answers with the Status of err. A client that accepts no plain JSON gets it indented
// (W-10).
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	body := mustJSON(status)
	if !acceptsJSON(r) || pretty(r) {
		body = indented(body)
	} else {
		body = append(body, '\n')
	}
	w.Header().Set("Content-Type", "application/json")
	if status.Code == http.StatusForbidden {
		w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body)
}
