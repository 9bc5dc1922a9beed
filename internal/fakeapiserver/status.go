package fakeapiserver

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	// errPageNotFound is the 404 of a path that is no resource's (W-172).
	errPageNotFound = errors.New("404 page not found\n")
	// errRequestTimeout is the 504 of a request that took too long (W-176).
	errRequestTimeout = errors.New(
		`{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout",` +
			`"reason":"Timeout","details":{},"code":504}` + "\n")
)

// failed is an error that is a Status: what the client gets to see (W-170).
func failed(code int, reason metav1.StatusReason, message string,
	details *metav1.StatusDetails) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, Details: details,
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

// tooLarge is the answer to a resourceVersion that has not come yet (W-68).
func tooLarge(asked, current uint64) error {
	const retrySeconds = 1
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

// expiredContinue is the same for a continue token. It brings a token that goes on inconsistently
// (W-83).
func expiredContinue(goOn token) error {
	err := apierrors.NewResourceExpired(
		"The provided continue parameter is too old to display a consistent list result. " +
			"You can start a new list without the continue parameter, or use the continue token in this response to " +
			"retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - " +
			"objects that were created, modified, or deleted between the time the first chunk was returned and now may " +
			"show up in the list.")
	err.ErrStatus.ListMeta.Continue = goOn.String()
	return err
}

// expiredWatch is the in-stream answer to a watch from below the history (W-107).
func expiredWatch(asked, floor uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", asked, floor))
}

func methodNotAllowed() error {
	return failed(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource", &metav1.StatusDetails{})
}

// resourceNotFound is the 404 of a known group and version (W-172).
func resourceNotFound() error {
	return failed(http.StatusNotFound, metav1.StatusReasonNotFound,
		"the server could not find the requested resource", &metav1.StatusDetails{})
}

// injected is the error that FailLists, FailProbes, FailWatches and Reviews.Fail ask for.
func injected(code int) error {
	reasons := map[int]metav1.StatusReason{
		http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusGone: metav1.StatusReasonExpired,
		http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError: metav1.StatusReasonInternalError,
		http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
		http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
	}
	if code == http.StatusTooManyRequests { // as while the watch cache starts (W-72)
		return failed(code, reasons[code], "storage is (re)initializing", &metav1.StatusDetails{RetryAfterSeconds: 1})
	}
	return failed(code, reasons[code], "the test wants status "+strconv.Itoa(code), nil)
}
