package limits

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Rules are the objects of a namespace by which kube-apiserver refuses pods after its webhooks.
// Injection follows a closed set of their rules, which D30 has as a table: see ranges.go and
// quotas.go. A pod with any other rule gets no sidecar.
type Rules struct {
	Ranges []*corev1.LimitRange
	Quotas []*corev1.ResourceQuota
}

// RuleError names a rule that keeps a pod from having a sidecar.
type RuleError struct {
	Rule   string
	IsFull bool // the rule is in the table, and leaves too little room; false: it is not in the table
}

func (e *RuleError) Error() string { return e.Rule }

func newFullError(format string, args ...any) error {
	return &RuleError{fmt.Sprintf(format, args...), true}
}

func newUnknownRuleError(format string, args ...any) error {
	return &RuleError{fmt.Sprintf(format, args...), false}
}
