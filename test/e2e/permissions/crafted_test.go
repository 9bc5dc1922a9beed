package permissions

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// person is one of the rows.
func (w *world) person(t *testing.T, name string) identity {
	t.Helper()
	i := slices.IndexFunc(w.people, func(p identity) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("there is no %s", name)
	}
	return w.people[i]
}

// starts are keys at which a continue token of a list in namespace red may say that the list goes
// on.
var starts = []string{
	"a\u0000", "b", "/a\u0000", "//a", "../blue/a\u0000", "/../blue/a", "../blue", "..", "/..", "./../blue/a",
	"a/../../blue/a", "blue/a\u0000", "/blue/a",
	"red/a\u0000", "/red/a\u0000", "/registry/configmaps/blue/a", "../../configmaps/blue/a", "../../secrets/red/a",
	"/../../secrets", "%2e%2e/blue/a", "..%2Fblue",
	"\u0000", "\u0000blue/a", "\uffff", "a\u0000/../blue", "~", "-", strings.Repeat("../", 20) + "secrets/red/a",
	strings.Repeat("z", 4096),
}

// trespasses are requests of a list in namespace red that try to get out of it.
func trespasses(rv int64) []target {
	const red = "/api/v1/namespaces/red/configmaps"
	var all []target
	for _, start := range starts {
		for _, version := range []int64{rv, -1, 1} {
			token := url.QueryEscape(exchange.EncodeToken(version, start))
			all = append(all, get(red+"?limit=2&continue="+token)...)
			if version == rv {
				all = append(all, get(red+"?continue="+token, red+"?limit=1&resourceVersion=0&continue="+token, red+"?limit=500&"+
					named+"&continue="+token)...)
			}
		}
	}
	for _, selector := range []string{
		"metadata.namespace=blue", "metadata.name=d,metadata.namespace=blue", "metadata.namespace!=red",
		"metadata.namespace=", "metadata.namespace=red,metadata.namespace=blue",
		"metadata.name=../blue/d", "metadata.name=blue/d", "metadata.name=d", "metadata.name!=a",
		"metadata.namespace=../blue", "metadata.namespace==blue", `metadata.namespace=b\,lue`,
	} {
		escaped := url.QueryEscape(selector)
		all = append(all, get(
			red+"?resourceVersion=0&fieldSelector="+escaped, red+"?fieldSelector="+escaped, red+"?"+second+
				"&resourceVersion=0&fieldSelector="+escaped,
			"/api/v1/watch/namespaces/red/configmaps?timeoutSeconds=1&fieldSelector="+escaped,
			"/api/v1/configmaps?resourceVersion=0&fieldSelector="+escaped,
			red+"?resourceVersion=0&fieldSelector=metadata.namespace%3Dred&fieldSelector="+escaped,
		)...)
	}
	return append(all, get(
		red+"?resourceVersion=0&namespace=blue", red+"?resourceVersion=0&labelSelector=team+in+(d)", red+
			"?resourceVersion=0&labelSelector=%21none",
		"/api/v1/namespaces/red%2F..%2Fblue/configmaps?resourceVersion=0",
		"/api/v1/namespaces/red/configmaps/..%2F..%2Fblue%2Fconfigmaps%2Fd?resourceVersion=0",
		"/api/v1/namespaces/red/configmaps%2F..%2Fsecrets?resourceVersion=0",
		"/api/v1/namespaces/red/configmaps/%2e%2e?resourceVersion=0",
		"/api/v1/namespaces/red/../blue/configmaps/d?resourceVersion=0",
		"/api/v1/namespaces/red/configmaps/../../blue/configmaps/d?resourceVersion=0",
		"/api/v1/namespaces/red%00/configmaps?resourceVersion=0",
		"/api/v1/namespaces/blue/../red/configmaps?resourceVersion=0",
		"/api/v1/namespaces/red/configmaps/a%2F..%2Fb?resourceVersion=0", "/api/v1/namespaces//configmaps?resourceVersion=0",
	)...)
}

// crafted lets users that may read ConfigMaps in one namespace try to get out of it. They get what
// they get directly, and nothing of any other namespace or of a Secret.
func (w *world) crafted(t *testing.T) {
	t.Parallel()
	list, err := w.Admin.CoreV1().ConfigMaps("red").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := counts{stranded: map[string]int{}, early: map[string]int{}}
	columns := trespasses(int64(exchange.Number(list.ResourceVersion)))
	for _, name := range []string{"cm-red", "cm-list-red", "cm-a-red"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := w.person(t, name)
			outside := [][]byte{[]byte(canary + "blue"), []byte(canary + "green"), []byte(secretly)}
			p.never = func(received []byte) error {
				for _, song := range outside {
					if bytes.Contains(received, song) {
						return fmt.Errorf("the answer shows %s…", song)
					}
				}
				return nil
			}
			for _, lane := range lanes(columns) {
				w.row(t.Context(), t, &n, p, lane)
			}
		})
	}
	t.Cleanup(func() {
		t.Logf("%d cells, %d of them refused, %d from memory, %d refused by the proxy itself", n.cells, n.refused, n.memory,
			n.own)
		if n.cells-n.refused < 100 {
			t.Error("there is little that was not refused")
		}
	})
}

// wanted are resources that a proxy mirrors on demand only.
var wanted = []string{
	"/api/v1/namespaces/red/endpoints", "/api/v1/serviceaccounts", "/apis/apps/v1/replicasets",
	"/apis/networking.k8s.io/v1/namespaces/red/ingresses",
	"/apis/batch/v1/jobs", "/api/v1/limitranges",
}

// onDemand sends requests for what is mirrored on demand as users without the right to it. The
// proxy lists and watches nothing for them.
func (w *world) onDemand(t *testing.T) {
	t.Parallel()
	proxy := process.StartProxy(t, w.binary, append(w.ProxyFlags(), "--resources=*")...)
	var asking sync.WaitGroup
	for _, name := range []string{"nothing", "cm-red", "system:anonymous", "a token of nobody's", "an expired token",
		"cert-nothing", "vouched-nothing", "an expired certificate",
		"nothing as all", "two tokens, the second good", "nothing, who claims", "a certificate and the token of another"} {
		c := w.callerOf(t, proxy, name)
		asking.Go(func() {
			for _, path := range wanted {
				for _, target := range []string{path + "?resourceVersion=0", path, path + "?" + second + "&resourceVersion=0",
					path + "/a?resourceVersion=0", path + "?limit=abc"} {
					if a := c.mustAsk(t, target); a.Status < http.StatusBadRequest {
						t.Errorf("%s, %s: %d", name, target, a.Status)
					}
				}
			}
			if err := c.leave(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	asking.Wait()
	time.Sleep(2 * time.Second) // what was begun has been written down by now
	for _, e := range w.listed(t) {
		t.Errorf("listed without a user that may have it: %s %s", e.Verb, e.RequestURI)
	}
	// A user with the right makes the proxy list it; for others nothing changes.
	all, nothing := w.callerOf(t, proxy, "all"), w.callerOf(t, proxy, "nothing")
	for _, path := range wanted {
		process.Awaiting(t, path+" to be mirrored", func(context.Context) error {
			if a := all.mustAsk(t, path+"?resourceVersion=0"); a.Status != http.StatusOK ||
				a.Header.Get(exchange.FlowControl) != "" {
				return fmt.Errorf("%d, from upstream: %t", a.Status, a.Header.Get(exchange.FlowControl) != "")
			}
			return nil
		})
		if a := nothing.mustAsk(t, path+"?resourceVersion=0"); a.Status != http.StatusForbidden {
			t.Errorf("%s: a user without the right now gets %d", path, a.Status)
		}
	}
	if n := len(w.listed(t)); n < len(wanted) {
		t.Errorf("%d resources are mirrored, and upstream has written down %d lists and watches", len(wanted), n)
	}
}

// listed is what upstream has written down of lists and watches by the proxies of what is wanted on
// demand.
func (w *world) listed(t *testing.T) []authcluster.Entry {
	t.Helper()
	return slices.DeleteFunc(w.Audit.Entries(t, "/"), func(e authcluster.Entry) bool {
		path, _, _ := strings.Cut(e.RequestURI, "?")
		resource := path[strings.LastIndexByte(path, '/')+1:]
		among := slices.ContainsFunc(wanted, func(path string) bool { return strings.HasSuffix(path, "/"+resource) })
		return e.User.Username != string(authcluster.Self) || e.Verb != "list" && e.Verb != "watch" || !among
	})
}

func (w *world) callerOf(t *testing.T, proxy *process.Proxy, name string) *caller {
	t.Helper()
	p := w.person(t, name)
	return &caller{to: authcluster.Through(proxy, p.User), who: p.User}
}

// mustAsk sends a request, and fails the test if there is no answer.
func (c *caller) mustAsk(t *testing.T, target string) *exchange.Answer {
	t.Helper()
	a, _, err := c.ask(t.Context(), get(target)[0])
	if err != nil {
		t.Errorf("%s, %s: %v", c.who.Name, target, err)
		return &exchange.Answer{}
	}
	return a
}
