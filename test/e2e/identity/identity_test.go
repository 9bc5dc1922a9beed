package identity

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
	"spillway/test/framework/wire"
)

// The users: one that sends the requests, one that it may impersonate, and one without rights.
const (
	client    controlplane.User = "client"
	victim    controlplane.User = "victim"
	powerless controlplane.User = "powerless"
)

// listener is a way to the cluster.
type listener struct {
	name  string
	to    wire.Address
	self  bool // without credentials, requests are made as the proxy
	http2 bool
}

// claimCase is a request with a claim in some shape, sent directly or through a listener.
type claimCase struct {
	at    listener
	claim claim
	shape shape
	way   proxyRoute

	mark   string
	status int  // 0: the connection was closed without an answer
	memory bool // the answer is the proxy's own
	err    error
}

func (r *claimCase) String() string {
	return fmt.Sprintf("%s: %s, %s, %s", r.at.name, r.claim.name, r.shape.name, r.way.name)
}

// key is what a claimCase has in common with the same sent directly.
func (r *claimCase) key() string {
	return fmt.Sprintf("%t %t %s %s %s", r.at.self, r.at.http2, r.claim.name, r.shape.name, r.way.name)
}

type world struct {
	*authcluster.Cluster
	claims []claim
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Cluster: authcluster.Start(
		t, authcluster.Options{Users: map[controlplane.User][]string{client: nil, victim: nil, powerless: nil}})}
	for _, user := range []controlplane.User{client, victim} {
		w.Grant(t, w.User(user), authcluster.In("default", authcluster.Rule("*", "", "*")))
	}
	impersonate := func(group, resource string, names ...string) rbacv1.PolicyRule {
		return authcluster.Rule("impersonate", group, resource, names...)
	}
	w.Grant(t, w.User(client), authcluster.Everywhere(
		impersonate("", "users", string(victim)), impersonate("", "groups", "claimed"),
		impersonate("authentication.k8s.io", "uids", "claimed"),
		impersonate("authentication.k8s.io", "userextras/claim", "claimed"),
	))
	w.Settle(t)
	core, create := w.Admin.CoreV1(), metav1.CreateOptions{}
	if _, err := core.ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, create); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := core.Pods("default").Create(t.Context(), pod, create); err != nil {
		t.Fatal(err)
	}
	w.claims = []claim{
		{"Authorization", w.bearer(client)},
		{"Impersonate-User", string(victim)}, {"Impersonate-Group", "claimed"}, {"Impersonate-Uid", "claimed"},
		{"Impersonate-Extra-Claim", "claimed"},
		{"X-Remote-User", string(victim)}, {"X-Remote-Group", "system:masters"}, {"X-Remote-Uid", "claimed"},
		{"X-Remote-Extra-Claim", "claimed"},
	}
	return w
}

func (w *world) bearer(u controlplane.User) string { return w.User(u).Header.Get("Authorization") }

// shown is what a request shows besides what is tried. To the proxy as itself it shows nothing
// else: then upstream would refuse it.
func (w *world) shown(r *claimCase) (own []string, c claim, other string) {
	c = r.claim
	if c.name == "Authorization" {
		if r.at.self {
			c.value = w.bearer(powerless)
		}
		return nil, c, "Bearer nobody"
	}
	if !r.at.self {
		own = append(own, "Authorization: "+w.bearer(client))
	}
	if strings.HasPrefix(c.name, "Impersonate-") && c.name != "Impersonate-User" {
		own = append(own, "Impersonate-User: "+string(victim))
	}
	return own, c, "other"
}

// TestIdentityHeaders is everything that can be claimed, in every shape, by every way.
func TestIdentityHeaders(t *testing.T) {
	w := newWorld(t)
	binary := process.BuildProxy(t)
	flags := append(w.ProxyFlags(), "--resources=configmaps", "--listen=127.0.0.1:0")
	asClient := process.StartProxy(t, binary, append(flags, "--listen-identity=client")...)
	asSelf := process.StartProxy(t, binary, append(flags, "--listen-identity=self", "--listen-allow-connect")...)
	direct := w.Direct(authcluster.Anonymous())
	secure := authcluster.Through(asClient, authcluster.Anonymous())
	var trials []*claimCase
	for _, at := range []listener{
		{name: "direct", to: direct}, {name: "TLS", to: secure},
		{name: "plain, as the client", to: authcluster.Plainly(asClient)},
		{name: "direct", to: direct, self: true}, {name: "plain, as itself", to: authcluster.Plainly(asSelf), self: true},
		{name: "direct", to: direct, http2: true}, {name: "TLS", to: secure, http2: true},
	} {
		trials = append(trials, w.trialsAt(at)...)
	}
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(32)
	for i, r := range trials {
		group.Go(func() error {
			r.mark = fmt.Sprintf("m%dm", i)
			w.carryOut(ctx, r)
			return nil
		})
	}
	_ = group.Wait() // what went wrong is noted
	w.judge(t, trials)
}

// patience bounds how long a request may take.
const patience = time.Minute

// trialsAt are all that are sent to a listener.
func (w *world) trialsAt(at listener) []*claimCase {
	var all []*claimCase
	for _, c := range w.claims {
		for _, s := range shapes {
			for _, v := range ways {
				if at.http2 && (!s.http2 || strings.HasPrefix(v.name, "upgrade") || v.chunked) {
					continue
				}
				all = append(all, &claimCase{at: at, claim: c, shape: s, way: v})
			}
		}
	}
	return all
}

func (w *world) carryOut(ctx context.Context, r *claimCase) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	own, c, other := w.shown(r)
	lines, trailer := r.shape.write(c, other)
	if r.at.http2 {
		r.overHTTP2(ctx, append(own, lines...))
		return
	}
	conn, err := wire.Dial(ctx, r.at.to)
	if err != nil {
		r.err = err
		return
	}
	defer conn.Close()
	a, _, err := conn.AskUntil(r.way.method, r.way.request(r.at.to.Host, r.mark, own, lines, trailer), func([]byte) bool {
		return false
	})
	if err != nil {
		r.err = err
		return
	}
	r.answered(a.Status, a.Header)
}

func (r *claimCase) answered(status int, header http.Header) {
	r.status, r.memory = status, header.Get(exchange.FlowControl) == ""
}

var transports sync.Map // of the address

// overHTTP2 sends the same in HTTP/2.
func (r *claimCase) overHTTP2(ctx context.Context, lines []string) {
	transport := &http.Transport{TLSClientConfig: r.at.to.TLS.Clone(), DisableCompression: true}
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP2(true)
	kept, _ := transports.LoadOrStore(r.at.to.Host, transport)
	req, err := http.NewRequestWithContext(ctx, r.way.method, "https://"+r.at.to.Host+r.way.target(r.mark),
		strings.NewReader(r.way.body))
	if err != nil {
		r.err = err
		return
	}
	for _, line := range append(lines, r.way.lines...) {
		name, value, _ := strings.Cut(line, ":")
		req.Header.Add(name, strings.TrimSpace(value))
	}
	response, err := kept.(*http.Transport).RoundTrip(req)
	if err != nil {
		r.err = err
		return
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		r.err = err
		return
	}
	if response.ProtoMajor != 2 {
		r.err = fmt.Errorf("answered in %s", response.Proto)
	}
	r.answered(response.StatusCode, response.Header)
}

// users are those that a request was carried out as, by the records of upstream's stages.
type users map[string]bool

func describe(e authcluster.Entry) string {
	text := e.User.Username
	if i := e.ImpersonatedUser; i != nil {
		text += fmt.Sprintf(" as %s %q %q %q", i.Username, i.UID, i.Groups, i.Extra)
	}
	return text
}

// ended is what upstream recorded about all trials. A request is recorded before it is answered,
// and the user that it was carried out as perhaps only after that.
func (w *world) ended(t *testing.T) (all []authcluster.Entry) {
	t.Helper()
	process.Awaiting(t, "upstream to have written down the ends of all requests", func(context.Context) error {
		all = w.Audit.Entries(t, "mark=m")
		open := map[string]string{}
		for _, e := range all {
			open[e.AuditID] = e.RequestURI
		}
		for _, e := range all {
			// of those there is but one entry
			refused := e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusUnauthorized
			if refused || e.Stage == "ResponseComplete" || e.Stage == "Panic" {
				delete(open, e.AuditID)
			}
		}
		for _, uri := range open {
			return fmt.Errorf("%d have not ended, such as %s", len(open), uri)
		}
		return nil
	})
	return all
}

// judge holds what upstream wrote down about a request through the proxy against what it wrote down
// about the same request sent directly.
func (w *world) judge(t *testing.T, trials []*claimCase) {
	wrote := map[string]users{}
	for _, e := range w.ended(t) {
		_, rest, _ := strings.Cut(e.RequestURI, "mark=")
		mark, _, _ := strings.Cut(rest, "&")
		if wrote[mark] == nil {
			wrote[mark] = users{}
		}
		wrote[mark][describe(e)] = true
	}
	directly := map[string]*claimCase{}
	for _, r := range trials {
		if r.at.name == "direct" {
			directly[r.key()] = r
		}
	}
	summary := map[string]map[string]int{}
	for _, r := range trials {
		if r.at.name == "direct" {
			continue
		}
		outcome, problem := r.judge(directly[r.key()], wrote[r.mark], wrote[directly[r.key()].mark])
		if problem != "" {
			t.Errorf("%v: %s", r, problem)
		}
		if summary[r.at.name] == nil {
			summary[r.at.name] = map[string]int{}
		}
		summary[r.at.name][outcome]++
	}
	for _, name := range slices.Sorted(maps.Keys(summary)) {
		t.Logf("%s: %v", name, summary[name])
		if summary[name]["as the client"] == 0 || summary[name]["refused by the proxy"] == 0 || summary[name]["from memory"]+
			summary[name]["as itself"] == 0 {
			t.Errorf("%s: something never happened", name)
		}
	}
}

// judge says what became of a claimCase, and what is wrong with that.
func (r *claimCase) judge(direct *claimCase, wrote, wroteDirectly users) (outcome, problem string) {
	lists := fmt.Sprintf("%d (%v), upstream wrote down %q; directly %d (%v), %q", r.status, r.err,
		slices.Sorted(maps.Keys(wrote)), direct.status, direct.err,
		slices.Sorted(maps.Keys(wroteDirectly)))
	if r.at.self && !r.credentials() {
		for name := range wrote {
			if name != string(authcluster.Self) {
				return "", "somebody else than the proxy itself: " + lists
			}
		}
		return "as itself", ""
	}
	for name := range wrote {
		if !wroteDirectly[name] {
			return "", "not who asked: " + lists
		}
	}
	switch {
	case len(wrote) > 0:
		if r.status != direct.status {
			return "", "another answer: " + lists
		}
		return "as the client", ""
	case r.status == direct.status && r.memory:
		if r.status < http.StatusBadRequest {
			return "from memory", ""
		}
		return "refused by the proxy", ""
	case r.memory && r.status >= 400 && r.status < 500:
		return "refused by the proxy", ""
	case r.err != nil && direct.err != nil, r.err != nil && r.at.http2:
		return "no request", ""
	}
	return "", "something else: " + lists
}

// credentials reports whether a request to the proxy as itself brings some of its own, in a way
// that an HTTP server could take for such.
func (r *claimCase) credentials() bool {
	switch {
	case strings.HasPrefix(r.claim.name, "X-Remote-"):
		return false // taken from a front proxy alone, which has a certificate
	case strings.HasPrefix(r.claim.name, "Impersonate-") && r.claim.name != "Impersonate-User":
		return true // it brings Impersonate-User, too
	}
	switch r.shape.name {
	case "absent", "in a trailer", "with underscores", "folded into another":
		return false
	}
	return true
}
