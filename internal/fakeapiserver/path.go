package fakeapiserver

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// target is what the path of a request names.
type target struct {
	table                        *table
	namespace, name, subresource string
}

// locate finds the resource that a path names (W-20, W-21). The error is the 404 that
// kube-apiserver has for a path that names none (W-172).
func (s *Server) locate(path string) (target, error) {
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return target{}, errPageNotFound
	}
	var at target
	inNamespace := len(parts) >= 3 && parts[0] == "namespaces" &&
		!(len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize"))
	if inNamespace {
		at.namespace, parts = parts[1], parts[2:]
	}
	at.table = s.tables[gv.WithResource(parts[0])]
	if at.table == nil || len(parts) > 3 || inNamespace && !at.table.kind.Namespaced {
		return target{}, s.notFoundIn(gv)
	}
	if len(parts) > 1 {
		at.name = parts[1]
	}
	if len(parts) > 2 {
		at.subresource = parts[2]
	}
	if at.name != "" && at.table.kind.Namespaced && at.namespace == "" || at.name == "" && len(parts) > 1 {
		return target{}, resourceNotFound()
	}
	return at, nil
}

// notFoundIn is the 404 of a path that names no resource of a group and version. One that holds
// built-in resources answers with a Status.
func (s *Server) notFoundIn(gv schema.GroupVersion) error {
	for _, t := range s.order {
		if t.kind.GVR.GroupVersion() == gv && !t.kind.Custom {
			return resourceNotFound()
		}
	}
	return errPageNotFound
}
