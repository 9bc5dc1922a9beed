package main

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/auth"
	"spillway/internal/metric"
	"spillway/internal/status"
)

// reviewFailures are why upstream does not answer reviews at present.
func (a *access) reviewFailures() (all []*auth.ReviewFailure) {
	for _, reviewer := range []*auth.Reviewer{a.reviewer, a.accountReviewer.Load()} {
		if reviewer == nil {
			continue
		}
		if failure := reviewer.Failure(); failure != nil {
			all = append(all, failure)
		}
	}
	return all
}

// describeReviews is the part of /readyz?verbose about reviews. Nothing of it makes a replica
// unready: as a rule all replicas have the same API server and the same role.
func (a *access) describeReviews() (lines []string) {
	for _, failure := range a.reviewFailures() {
		since := time.Since(failure.Since).Round(time.Second)
		cause := status.OneLine(failure.Err.Error())
		if failure.Err.IsRefused() {
			lines = append(lines, fmt.Sprintf("[!]reviews refused for %s: %s; clients get nothing from memory: give Spillway "+
				"the rights of the cluster role system:auth-delegator, which the chart binds unless rbac.create is false",
				since, cause))
			continue
		}
		lines = append(lines, fmt.Sprintf("[!]reviews unanswered for %s: %s; clients that need one get nothing from memory",
			since, cause))
	}
	if len(lines) == 0 && a.reviewer != nil {
		lines = []string{"[+]reviews ok"}
	}
	return lines
}

// refusedReviews is 1 while upstream denies the proxy reviews, as an alert reads it.
func (a *access) refusedReviews() float64 {
	for _, failure := range a.reviewFailures() {
		if failure.Err.IsRefused() {
			return 1
		}
	}
	return 0
}

// registerReviewMetrics registers the metric whose value denied returns.
func registerReviewMetrics(r prometheus.Registerer, denied func() float64) {
	metric.At(r).GaugeFunc("spillway_reviews_denied",
		"1 while the API server denies Spillway the TokenReviews or SubjectAccessReviews that its clients need.", denied)
}
