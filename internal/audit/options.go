package audit

import (
	"io"

	"go.uber.org/zap"
	internal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
)

// Policy says which requests are put on record, and how much of them.
type Policy = internal.Policy

// ParsePolicy reads a policy as kube-apiserver does. Unknown fields are ignored, with a warning in
// the log.
func ParsePolicy(text []byte) (*Policy, error) { return policy.LoadPolicyFromBytes(text) }

// Options configure a Logger.
type Options struct {
	Policy *Policy
	// Out is where events are written, each write some whole lines. The Logger closes it if it is an
	// io.Closer.
	Out io.Writer
	// FailClosed says that a request is refused, and not answered from memory, if its event could not
	// be written.
	FailClosed bool
	Metrics    *Metrics // nil: nothing is registered
	Log        *zap.Logger
}
