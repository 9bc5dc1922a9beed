package serve

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Request is what a plan looks at: the raw request, unparsed where parsing could differ from upstream's (W-24, W-250).
type Request struct {
	Method    string
	Path      string // as sent, percent escapes and all
	RawQuery  string
	Accept    string
	UserAgent string
	Upgrade   bool // asks for another protocol
	// Trusted says that this request may be answered from memory: who asks has been found allowed to read everything that
	// is mirrored. All others go upstream.
	Trusted bool
}

// target is a parsed path of the form that can be answered from memory.
type target struct {
	gvr       schema.GroupVersionResource
	namespace string
	name      string // "" for a collection
}

// parseTarget reads the paths of collections and objects (W-20). Everything else, and every path that is not plainly one
// of them (escapes that change segments, empty or relative segments), is somebody else's business: upstream words the answer.
func parseTarget(path string) (target, bool) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, p := range parts {
		text, err := url.PathUnescape(p)
		if err != nil || text == "" || text == "." || text == ".." || strings.Contains(text, "/") {
			return target{}, false
		}
		parts[i] = text
	}
	var t target
	switch {
	case len(parts) > 2 && parts[0] == "api":
		t.gvr.Version = parts[1]
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		t.gvr.Group, t.gvr.Version = parts[1], parts[2]
		parts = parts[3:]
	default:
		return target{}, false
	}
	if parts[0] == "watch" {
		return target{}, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		t.namespace = parts[1]
		parts = parts[2:]
	}
	if len(parts) > 2 || t.gvr.Group == "" && t.gvr.Version != "v1" {
		return target{}, false
	}
	t.gvr.Resource = parts[0]
	if len(parts) == 2 {
		t.name = parts[1]
	}
	// namespaces/{name}/status and /finalize are subresources, not resources of a namespace.
	if t.namespace != "" && (t.gvr.Resource == "status" || t.gvr.Resource == "finalize") {
		return target{}, false
	}
	return t, true
}
