package fuzzdiff

import "strings"

// Resource is what is known of one resource that requests are for.
type Resource struct {
	Prefix     string // of its paths: /api/v1 or /apis/group/version
	Plural     string
	Namespaced bool
	Names      []string            // of objects that may be there
	Fields     map[string][]string // selectable beyond the name, with values
}

// collection is the path of all its objects, or of those in a namespace.
func (r Resource) collection(namespace string) string {
	if namespace == "" || !r.Namespaced {
		return r.Prefix + "/" + r.Plural
	}
	return r.Prefix + "/namespaces/" + namespace + "/" + r.Plural
}

// deprecated is the path that always watches (W-33).
func (r Resource) deprecated(namespace string) string {
	return strings.Replace(r.collection(namespace), r.Prefix, r.Prefix+"/watch", 1)
}

// State is what the cluster is like during a round of requests.
type State struct {
	Resources  []Resource
	Namespaces []string
	// Versions are resourceVersions that both sides hold the history of, oldest first; Ancient ones
	// neither does.
	Versions, Ancient []uint64
	// Between Ancient and Versions lie states that only one side may remember: no watch begins there
	// (DEV-8).
	Tokens      []string // honest continue tokens, from either side
	Credentials []string // values of Authorization
}

// forgotten reports that only one side may remember what happened since.
func (s *State) forgotten(version uint64) bool {
	return version > s.Ancient[len(s.Ancient)-1] && version < s.Versions[0]
}
