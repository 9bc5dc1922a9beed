package admin

import (
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/internal/apistatus"
	"spillway/internal/auth"
)

// judgement is what upstream says of a request.
type judgement struct {
	verdict  auth.Verdict
	refusal  *metav1.Status // the answer, unless it is allowed
	reviewed time.Time      // when the review of an allowed one was sent
	expires  time.Time      // when its credential ends by its own words; zero: it does not say
}

// unreviewed is the judgement of a request that upstream did not review, for a reason.
func unreviewed(why error) judgement {
	message := "the API server did not answer whether this is allowed"
	var unreviewedErr *auth.NotReviewedError
	if errors.As(why, &unreviewedErr) && unreviewedErr.IsRefused() {
		message = "the API server denied Spillway the review of whether this is allowed: Spillway needs the rights of " +
			"the cluster role system:auth-delegator"
	}
	return judgement{verdict: auth.Unreviewed, refusal: apistatus.New(http.StatusServiceUnavailable,
		metav1.StatusReasonServiceUnavailable, message, nil)}
}

// writeRefusal answers as a kube-apiserver refuses (W-174).
func writeRefusal(w http.ResponseWriter, s *metav1.Status) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(int(s.Code))
	_, _ = w.Write(apistatus.Body(s)) // #nosec G705 -- JSON, and said to be; the client may be gone
}
