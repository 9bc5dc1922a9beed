package fakeapiserver

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// discover answers discovery, version and health; false if the path is none of them. Aggregated
// discovery is not offered: a client that requests it gets the plain form, and falls back.
func (s *Server) discover(w http.ResponseWriter, r *http.Request) bool {
	path := strings.TrimSuffix(r.URL.Path, "/")
	var answer any
	switch path {
	case "/api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case "/apis":
		answer = metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: s.groups()}
	case "/version":
		git := s.kubernetesNow().Version
		answer = version.Info{Major: "1", Minor: minorOf(git), GitVersion: git, Platform: "linux/amd64"}
	case "/healthz", "/livez", "/readyz":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, "ok")
		return true
	default:
		if answer = s.groupOrVersion(path); answer == nil {
			return false
		}
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		writeError(w, r, err)
		return true
	}
	s.respond(w, r, http.StatusOK, raw)
	return true
}

// groupOrVersion describes /api/v1, /apis/{group} or /apis/{group}/{version}; nil if there is no
// such thing.
func (s *Server) groupOrVersion(path string) any {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return s.resourceList(schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3 && parts[0] == "apis":
		return s.resourceList(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	case len(parts) == 2 && parts[0] == "apis":
		for _, g := range s.groups() {
			if g.Name == parts[1] {
				g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				return g
			}
		}
	}
	return nil
}

func (s *Server) groups() []metav1.APIGroup {
	var list []metav1.APIGroup
	at := map[string]int{}
	for _, t := range s.order {
		gv := t.kind.GVR.GroupVersion()
		if gv.Group == "" {
			continue
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		i, known := at[gv.Group]
		if !known {
			i = len(list)
			at[gv.Group] = i
			list = append(list, metav1.APIGroup{Name: gv.Group, PreferredVersion: v})
		}
		if !hasVersion(list[i].Versions, v) {
			list[i].Versions = append(list[i].Versions, v)
		}
	}
	return list
}

func hasVersion(list []metav1.GroupVersionForDiscovery, v metav1.GroupVersionForDiscovery) bool {
	for _, known := range list {
		if known == v {
			return true
		}
	}
	return false
}

// resourceList describes one group and version; nil (of type any) if there is none.
func (s *Server) resourceList(gv schema.GroupVersion) any {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String()}
	if gv.Group == "" {
		list.APIVersion = ""
	}
	for _, t := range s.order {
		if k := t.kind; k.GVR.GroupVersion() == gv {
			verbs := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
			if k.Unwatchable {
				verbs = metav1.Verbs{"get", "list"}
			}
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.GVR.Resource, SingularName: strings.ToLower(k.Kind), Namespaced: k.Namespaced, Kind: k.Kind, Verbs: verbs,
				StorageVersionHash: k.Kind,
			})
		}
	}
	if len(list.APIResources) == 0 {
		return nil
	}
	return list
}

// caPEM is the server's own certificate, which clients must trust.
func (s *Server) caPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
}
