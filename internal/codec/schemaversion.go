package codec

import (
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
)

// SchemaVersion says whether the Go types of this build know every field that upstream may send:
// whether their minor version is not older than upstream's (W-235). They would leave out a field
// that they do not know, and no client could notice.
type SchemaVersion struct {
	minor    int // of the types
	suffices atomic.Bool
}

// unknownMinor is the minor version of types of a build that does not tell it: older than any.
const unknownMinor = -1

// NewSchemaVersion is this build's. It does not suffice until upstream's version is known.
func NewSchemaVersion() *SchemaVersion {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return SchemaVersionOf(unknownMinor)
	}
	return SchemaVersionOf(minorOfTypes(info.Deps))
}

// SchemaVersionOf is the one of types with a given minor version. Binaries of tests do not tell
// theirs.
func SchemaVersionOf(minor int) *SchemaVersion { return &SchemaVersion{minor: minor} }

// Suffices reports whether the types know what upstream sends.
func (v *SchemaVersion) Suffices() bool { return v != nil && v.suffices.Load() }

// SetUpstream notes upstream's minor version, as its /version tells it: "37", or "37+".
func (v *SchemaVersion) SetUpstream(minor string) {
	theirs, ok := leadingNumber(minor)
	v.suffices.Store(ok && v.minor >= theirs)
}

// minorOfTypes finds the version of Kubernetes' types among what the build depends on: k8s.io/api
// v0.37.1 is of Kubernetes 1.37.
func minorOfTypes(deps []*debug.Module) int {
	for _, dep := range deps {
		if dep.Path != "k8s.io/api" {
			continue
		}
		if dep.Replace != nil {
			dep = dep.Replace
		}
		if minor, ok := leadingNumber(strings.TrimPrefix(dep.Version, "v0.")); ok {
			return minor
		}
	}
	return unknownMinor
}

// leadingNumber is the number that text begins with.
func leadingNumber(text string) (int, bool) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	n, err := strconv.Atoi(text[:digits])
	return n, err == nil
}
