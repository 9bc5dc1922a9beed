package fakeapiserver

import (
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
)

// discovery is the answer at a path of discovery or version, nil at any other. Aggregated discovery
// is not offered: a client that requests it gets the plain form, and falls back.
func (s *Server) discovery(path string) any {
	path = strings.TrimSuffix(path, "/")
	switch path {
	case "/api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case "/apis":
		return metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: s.groups()}
	case "/version":
		git := s.kubernetesNow().Version
		minor := utilversion.MustParseSemantic(git).Minor()
		return version.Info{Major: "1", Minor: strconv.Itoa(int(minor)), GitVersion: git, Platform: "linux/amd64"}
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return s.resourceList(schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3 && parts[0] == "apis":
		return s.resourceList(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	case len(parts) == 2 && parts[0] == "apis":
		groups := s.groups()
		if i := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == parts[1] }); i >= 0 {
			groups[i].TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			return groups[i]
		}
	}
	return nil
}

// groups are the groups but the core one, with their versions, in the order of their declaration.
func (s *Server) groups() []metav1.APIGroup {
	var groups []metav1.APIGroup
	for _, t := range s.order {
		gv := t.kind.GVR.GroupVersion()
		if gv.Group == "" {
			continue
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		i := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == gv.Group })
		if i < 0 {
			i = len(groups)
			groups = append(groups, metav1.APIGroup{Name: gv.Group, PreferredVersion: v})
		}
		if !slices.Contains(groups[i].Versions, v) {
			groups[i].Versions = append(groups[i].Versions, v)
		}
	}
	return groups
}

// resourceList describes the resources of a group and version, nil (of type any) if there is none.
func (s *Server) resourceList(gv schema.GroupVersion) any {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String()}
	if gv.Group == "" {
		list.APIVersion = ""
	}
	for _, t := range s.order {
		k := t.kind
		if k.GVR.GroupVersion() != gv {
			continue
		}
		verbs := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
		if k.Unwatchable {
			verbs = metav1.Verbs{"get", "list"}
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.GVR.Resource, SingularName: strings.ToLower(k.Kind), Namespaced: k.Namespaced, Kind: k.Kind, Verbs: verbs,
			StorageVersionHash: k.Kind,
		})
	}
	if len(list.APIResources) == 0 {
		return nil
	}
	return list
}
