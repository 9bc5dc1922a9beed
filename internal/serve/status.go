package serve

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// auditID is the header in which every answer names its request (W-3).
const auditID = "Audit-Id"

// tooManyRequests is the text with which upstream's own flow control refuses (W-180).
const tooManyRequests = "Too many requests, please try again later.\n"

// newStatus returns a failure as upstream words it (W-170). details may be nil: then the field is absent.
func newStatus(code int, reason metav1.StatusReason, message string, details *metav1.StatusDetails) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  message,
		Reason:   reason,
		Details:  details,
		Code:     int32(code), // #nosec G115 -- a status code, or seconds of our own
	}
}

// statusBadRequest is a 400 (W-171).
func statusBadRequest(message string) *metav1.Status {
	return newStatus(http.StatusBadRequest, metav1.StatusReasonBadRequest, message, nil)
}

// statusUnauthorized is a 401 (W-174).
func statusUnauthorized() *metav1.Status {
	return newStatus(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized", nil)
}

// statusForbidden is a 403 about a request as a whole, not about an object (W-174).
func statusForbidden(message string) *metav1.Status {
	return newStatus(http.StatusForbidden, metav1.StatusReasonForbidden, message, &metav1.StatusDetails{})
}

// statusNotReady is the 429 for a cache that is still being filled; retryAfter is in seconds (W-72, W-180).
func statusNotReady(retryAfter int) *metav1.Status {
	return newStatus(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		"storage is (re)initializing", &metav1.StatusDetails{RetryAfterSeconds: int32(retryAfter)}) // #nosec G115 -- a status code, or seconds of our own
}

// statusUnavailable is a 503 that a client may repeat at once, since nothing was carried out (W-182, W-197).
func statusUnavailable(message string) *metav1.Status {
	return newStatus(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		message, &metav1.StatusDetails{RetryAfterSeconds: 1})
}

// statusBadGateway is a 502 without Retry-After: client-go repeats any request whose answer has one, and this one
// may have been carried out (W-197).
func statusBadGateway(message string) *metav1.Status {
	return newStatus(http.StatusBadGateway, metav1.StatusReasonInternalError, message, nil)
}

// statusShuttingDown is the answer to requests that arrive while the proxy stops. The words are upstream's (W-182).
func statusShuttingDown() *metav1.Status {
	return statusUnavailable("apiserver is shutting down")
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

// statusBody is the body of s. A Status holds nothing that cannot be encoded.
func statusBody(s *metav1.Status) []byte {
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(s)
	return b.Bytes()
}

// answerAuditID echoes the client's own id untouched, else makes one (W-3).
func answerAuditID(requested string) string {
	if requested != "" {
		return requested
	}
	return uuid.NewString()
}

// clip bounds what a message repeats of a request.
func clip(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// statusHeadTooLarge is the answer to a large head for which there is no room.
func statusHeadTooLarge() *metav1.Status {
	return newStatus(http.StatusRequestHeaderFieldsTooLarge, "RequestHeaderFieldsTooLarge",
		"the head of this request (its path, query and header fields, decoded) is large, and what --max-large-head-bytes leaves "+
			"for large heads is in use, or the request has no credentials: send it again later, with credentials, fewer or "+
			"shorter fields, or a shorter selector", nil)
}
