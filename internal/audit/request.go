package audit

import (
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"spillway/internal/auth"
)

// userAgentMaxBytes is how much of a User-Agent is put on record, as by kube-apiserver.
const userAgentMaxBytes = 1024

// RequestInfo is what is known of a request when it is about to be answered.
type RequestInfo struct {
	ID       string
	Received time.Time
	URI      string // path and query as Go's parser writes them
	What     auth.Attributes
	Who      *auth.Identity // nil: not known
	// Decision is "allow" or "forbid", and Reason the authorizer's own; empty without authorization.
	Decision, Reason string
	Header           http.Header // at least those that ReadsHeader names
	Remote           string      // the other end of the connection: an address, or empty
}

// ReadsHeader reports whether a header, by its canonical key, is put on record or says where a
// request comes from.
func ReadsHeader(key string) bool {
	return key == "User-Agent" || key == "X-Forwarded-For" || key == "X-Real-Ip"
}

// attributesOf is a request as a policy sees it.
func attributesOf(r RequestInfo) authorizer.Attributes {
	a := r.What
	record := authorizer.AttributesRecord{
		Verb: a.Verb, Namespace: a.Namespace, APIGroup: a.Group, APIVersion: a.Version, Resource: a.Resource,
		Subresource: a.Subresource,
		Name:        a.Name, ResourceRequest: a.Path == "", Path: a.Path,
	}
	if r.Who != nil {
		info := r.Who.UserInfo()
		known := &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups,
			Extra: make(map[string][]string, len(info.Extra))}
		for key, values := range info.Extra {
			known.Extra[key] = values
		}
		record.User = known
	}
	return record
}

func userOf(who *auth.Identity) authenticationv1.UserInfo {
	if who == nil {
		return authenticationv1.UserInfo{}
	}
	return who.UserInfo()
}

func objectOf(a auth.Attributes) *auditv1.ObjectReference {
	if a.Path != "" {
		return nil
	}
	return &auditv1.ObjectReference{
		Namespace: a.Namespace, Name: a.Name, Resource: a.Resource, Subresource: a.Subresource, APIGroup: a.Group,
		APIVersion: a.Version,
	}
}

// sourcesOf is the addresses of a request: those of X-Forwarded-For and X-Real-Ip, which the client
// may have invented, then that of the connection.
func sourcesOf(r RequestInfo) []string {
	ips := utilnet.SourceIPs(&http.Request{Header: r.Header, RemoteAddr: r.Remote})
	all := make([]string, 0, len(ips))
	for _, ip := range ips {
		all = append(all, ip.String())
	}
	return all
}

func agentOf(h http.Header) string {
	agent := h.Get("User-Agent")
	if len(agent) > userAgentMaxBytes {
		return agent[:userAgentMaxBytes] + "...TRUNCATED"
	}
	return agent
}
