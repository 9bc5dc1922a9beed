package clients

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spillway/test/framework/authcluster"
)

// requests are what a user requested, by the audit logs.
type requests struct {
	lists int    // complete states: LISTs, and watches that begin with one
	how   string // the first LIST and the first watch, by their parameters
}

// requestsOf are those of a user so far that were answered with success.
func requestsOf(t *testing.T, user string, logs ...*authcluster.Audit) requests {
	t.Helper()
	var r requests
	var list, watch string
	for _, log := range logs {
		seen := map[string]bool{}
		for _, e := range log.Entries(t, "/"+namespace+"/") {
			if e.User.Username != user || seen[e.AuditID] || e.ResponseStatus == nil || e.Stage == "RequestReceived" ||
				e.ResponseStatus.Code != http.StatusOK && e.ResponseStatus.Code != http.StatusSwitchingProtocols {
				continue
			}
			seen[e.AuditID] = true
			u, err := url.Parse(e.RequestURI)
			must(t, err)
			query := u.Query()
			switch e.Verb {
			case "list":
				if query.Get("continue") == "" {
					r.lists++
					list = cmp.Or(list, "LIST"+parameters(query))
				}
			case "watch":
				if version := query.Get("resourceVersion"); query.Get("sendInitialEvents") == "true" || version == "" ||
					version == "0" {
					r.lists++
				}
				protocol := ""
				if e.ResponseStatus.Code == http.StatusSwitchingProtocols {
					protocol = "WebSocket "
				}
				watch = cmp.Or(watch, protocol+"WATCH"+parameters(query))
			}
		}
	}
	r.how = strings.TrimPrefix(list+", "+watch, ", ")
	return r
}

// parameters are those that say how a client lists or watches. Figures are n.
func parameters(query url.Values) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(query)) {
		value := query.Get(name)
		if slices.Contains([]string{"watch", "labelSelector", "timeout"}, name) || value == "" {
			continue
		}
		if n, err := strconv.Atoi(value); err == nil && n > 0 && name != "limit" {
			value = "n"
		}
		all = append(all, fmt.Sprint(name, "=", value))
	}
	if len(all) == 0 {
		return ""
	}
	return " `" + strings.Join(all, " ") + "`"
}
