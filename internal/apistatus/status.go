package apistatus

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AuditIDHeader is the header in which every answer names its request (W-3).
const AuditIDHeader = "Audit-Id"

// TooManyRequestsText is the text with which upstream's own flow control refuses (W-180).
const TooManyRequestsText = "Too many requests, please try again later.\n"

// New returns a failure as upstream words it (W-170). details may be nil: then the field is absent.
func New(code int, reason metav1.StatusReason, message string, details *metav1.StatusDetails) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  message,
		Reason:   reason,
		Details:  details,
		Code:     int32(code), // #nosec G115 -- a status code
	}
}

// BadRequest is a 400 (W-171).
func BadRequest(message string) *metav1.Status {
	return New(http.StatusBadRequest, metav1.StatusReasonBadRequest, message, nil)
}

// Unauthorized is a 401 (W-174).
func Unauthorized() *metav1.Status {
	return New(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized", nil)
}

// Forbidden is a 403 about a request as a whole, not about an object (W-174).
func Forbidden(message string) *metav1.Status {
	return New(http.StatusForbidden, metav1.StatusReasonForbidden, message, &metav1.StatusDetails{})
}

// NotReady is the 429 for a cache that is still being filled; retryAfter is in seconds (W-72,
// W-180).
func NotReady(retryAfter int) *metav1.Status {
	return New(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		"storage is (re)initializing",
		&metav1.StatusDetails{RetryAfterSeconds: int32(retryAfter)}) // #nosec G115 -- seconds of our own
}

// RetrySpread is the number of seconds over which clients are spread that are to try again, so that
// they do not return as one herd.
const RetrySpread = 5

// RetryAfter is the number of seconds after which a client is to try again whose request cannot be
// served now, as many others cannot. It is not the same for all.
func RetryAfter() int { return 1 + rand.IntN(RetrySpread) } // #nosec G404 -- spreads times

// Unavailable is a 503 that a client may repeat at once, because nothing was carried out (W-182,
// W-197).
func Unavailable(message string) *metav1.Status {
	return New(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		message, &metav1.StatusDetails{RetryAfterSeconds: 1})
}

// BadGateway is a 502 without Retry-After: client-go repeats any request whose answer has one, and
// this one may have been carried out (W-197).
func BadGateway(message string) *metav1.Status {
	return New(http.StatusBadGateway, metav1.StatusReasonInternalError, message, nil)
}

// ShuttingDown is the answer to requests that arrive while the proxy stops. The words are
// upstream's (W-182).
func ShuttingDown() *metav1.Status {
	return Unavailable("apiserver is shutting down")
}

// HeadTooLarge is the answer to a large head for which there is no room.
func HeadTooLarge() *metav1.Status {
	return New(http.StatusRequestHeaderFieldsTooLarge, "RequestHeaderFieldsTooLarge",
		"the head of this request (its path, query and header fields, decoded) is large, and what "+
			"--max-large-header-bytes leaves for large heads is in use, or the request has no credentials: send it again "+
			"later, with credentials, fewer or shorter fields, or a shorter selector", nil)
}

// Of is what upstream answers for an error of its own code: the Status that the error brings, or
// else a 500 that gives no reason (W-27, W-170).
func Of(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		return New(http.StatusInternalServerError, "", err.Error(), nil)
	}
	s := known.Status()
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &s
}

// statusHeaders sets the headers that depend on which Status it is (W-3, W-182).
func statusHeaders(s *metav1.Status, set func(key, value string)) {
	if s.Code == http.StatusForbidden || s.Code == http.StatusServiceUnavailable {
		set("X-Content-Type-Options", "nosniff")
	}
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
}

// Body is the body of s. A Status holds nothing that cannot be encoded.
func Body(s *metav1.Status) []byte {
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(s)
	return b.Bytes()
}

// AuditIDFor echoes the client's own id untouched, else makes one (W-3).
func AuditIDFor(requested string) string {
	if requested != "" {
		return requested
	}
	return uuid.NewString()
}

// Clip bounds what a message repeats of a request.
func Clip(s string) string {
	const maxBytes = 128
	if len(s) <= maxBytes {
		return s
	}
	return s[:maxBytes] + "…"
}
