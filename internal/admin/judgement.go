package admin

import (
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// judgement is what upstream says of a request.
type judgement struct {
	refusal  *metav1.Status // nil: it is allowed
	reviewed time.Time      // when the review of an allowed one was sent
	expires  time.Time      // when its credential ends by its own words; zero: it does not say
}

// isUnreviewed reports that upstream did not say.
func (j judgement) isUnreviewed() bool {
	return j.refusal != nil && j.refusal.Code == http.StatusServiceUnavailable
}
