package fakeapiserver

import (
	"net/http"
	"strings"
)

// Kubernetes is what differs between versions of kube-apiserver, and by their gates.
type Kubernetes struct {
	Version string // gitVersion of /version
	// NoWatchList refuses sendInitialEvents, as without the gate WatchList.
	NoWatchList bool
	// PlainWatchLists compresses no watch-list, as without the gate WatchListCompression.
	PlainWatchLists bool
}

// Releases with their default gates.
var (
	Kubernetes133 = Kubernetes{Version: "v1.33.13", NoWatchList: true, PlainWatchLists: true}
	Kubernetes136 = Kubernetes{Version: "v1.36.3", PlainWatchLists: true}
	Kubernetes137 = Kubernetes{Version: "v1.37.1"}
)

// SetVersion changes the gitVersion of /version, as an upgrade does, and nothing else.
func (s *Server) SetVersion(git string) {
	k := s.kubernetesNow()
	k.Version = git
	s.SetKubernetes(k)
}

// SetKubernetes behaves as another version from the next request on.
func (s *Server) SetKubernetes(k Kubernetes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kubernetes = k
}

func (s *Server) kubernetesNow() Kubernetes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kubernetes
}

// minorOf is the second number of a gitVersion.
func minorOf(git string) string {
	if parts := strings.Split(git, "."); len(parts) > 1 {
		return parts[1]
	}
	return ""
}

// compressed reports whether a watch is compressed (W-7).
func (s *Server) compressed(r *http.Request, q *query) bool {
	return q.watchList() && q.options.AllowWatchBookmarks && s.acceptsGzip(r) && !s.kubernetesNow().PlainWatchLists
}
