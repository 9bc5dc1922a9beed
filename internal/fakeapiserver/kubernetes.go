package fakeapiserver

import "net/http"

// Kubernetes is what differs between versions of kube-apiserver, by the defaults of their gates.
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

// compresses reports that a watch is compressed (W-7).
func (s *Server) compresses(r *http.Request, q *query) bool {
	return q.isWatchList() && q.options.AllowWatchBookmarks && acceptsGzip(r) && !s.kubernetesNow().PlainWatchLists
}
