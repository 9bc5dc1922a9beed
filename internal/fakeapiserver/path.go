package fakeapiserver

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// target is what the path of a request names.
type target struct {
	table                        *table
	namespace, name, subresource string
}

// locate finds the resource that a path names (W-20, W-21). If there is none, notFound writes the
// 404 that kube-apiserver has for it.
func (s *Server) locate(path string) (at target, notFound func(http.ResponseWriter, *http.Request)) {
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return at, pageNotFound
	}
	if known, custom := s.serves(gv); !known {
		return at, pageNotFound
	} else if custom {
		notFound = pageNotFound
	} else {
		notFound = resourceNotFound
	}
	inNamespace := len(parts) >= 3 && parts[0] == "namespaces" &&
		!(len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize"))
	if inNamespace {
		at.namespace, parts = parts[1], parts[2:]
	}
	at.table = s.tables[gv.WithResource(parts[0])]
	if at.table == nil || len(parts) > 3 || inNamespace && !at.table.kind.Namespaced {
		return at, notFound
	}
	if len(parts) > 1 {
		at.name = parts[1]
	}
	if len(parts) > 2 {
		at.subresource = parts[2]
	}
	if at.name != "" && at.table.kind.Namespaced && at.namespace == "" || at.name == "" && len(parts) > 1 {
		return at, resourceNotFound
	}
	return at, nil
}

// serves reports whether a group and version exists, and whether it holds nothing but custom
// resources.
func (s *Server) serves(gv schema.GroupVersion) (known, custom bool) {
	custom = true
	for _, t := range s.order {
		if t.kind.GVR.GroupVersion() == gv {
			known, custom = true, custom && t.kind.Custom
		}
	}
	return known, known && custom
}
