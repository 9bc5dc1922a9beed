package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
	"spillway/test/framework/wire"
)

// policy has each level, and what can be left out of each.
const policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [Panic]
rules:
- level: None
  users: [spillway]
- level: None
  namespaces: [quiet]
- level: RequestResponse
  namespaces: [whole]
- level: RequestResponse
  namespaces: [lean]
  omitManagedFields: true
- level: Request
  userGroups: [testers]
  omitStages: [RequestReceived]
- level: Metadata
`

// The users.
const (
	reader  controlplane.User = "reader"
	tester  controlplane.User = "tester"
	nothing controlplane.User = "nothing"
)

type world struct {
	*authcluster.Cluster
	upstream log
	people   map[string]authcluster.User
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{upstream: log{filepath.Join(dir, "upstream.log")}}
	w.Cluster = authcluster.Start(t, authcluster.Options{
		Users: map[controlplane.User][]string{reader: {"people"}, tester: {"testers"}, nothing: nil},
		APIServerArgs: []string{
			"--audit-policy-file=" + policyFile(t, policy), "--audit-log-path=" + w.upstream.name,
		},
	})
	for _, name := range []string{"plain", "whole", "lean", "quiet"} {
		w.Namespace(t, name)
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "a"}},
			Data: map[string]string{"k": "<&>"}}
		if _, err := w.Admin.CoreV1().ConfigMaps(name).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	others, err := controlplane.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	forged, err := others.IssueClient("reader")
	if err != nil {
		t.Fatal(err)
	}
	read := authcluster.Everywhere(authcluster.Rule("get,list,watch", "", "configmaps"))
	w.people = map[string]authcluster.User{
		"reader": w.User(reader), "tester": w.User(tester), "nothing": w.User(nothing),
		"account": w.ServiceAccount(t, "plain", "account", 0), "certified": w.Certified(t, "certified", "people"),
		"stranger": authcluster.WithCertificate(t, "stranger", forged),
	}
	for name, p := range w.people {
		if name != "nothing" && name != "stranger" {
			w.Grant(t, p, read)
		}
	}
	w.Settle(t)
	return w
}

func policyFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// log is an audit log.
type log struct{ name string }

// event is one line of it.
type event map[string]any

// of are the events of a request.
func (l log) of(t *testing.T, id string) (all []event) {
	t.Helper()
	text, err := os.ReadFile(l.name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte(`"`+id+`"`)) || line[len(line)-1] != '\n' {
			continue // it is another's, or is being written
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// ended is of when the last event is there, or none is to come.
func (l log) ended(t *testing.T, id string) []event {
	t.Helper()
	var all []event
	process.Awaiting(t, "the events of "+id, func(context.Context) error {
		all = l.of(t, id)
		if n := len(all); n == 0 || !last(all[n-1]) {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
	return all
}

// last reports that no event comes after this. An unauthenticated request has but one.
func last(e event) bool {
	status, _ := e["responseStatus"].(map[string]any)
	return e["stage"] == "ResponseComplete" || status["code"] == float64(http.StatusUnauthorized)
}

// question is a request.
type question struct {
	who, method, target, accept string
	status                      int
	silent                      bool // the policy wants no record of it
}

const (
	list      = "/api/v1/namespaces/%s/configmaps"
	protobuf  = "application/vnd.kubernetes.protobuf"
	partial   = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	partials  = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	watchList = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
)

// questions are those that are answered from memory.
func questions() []question {
	var all []question
	get := func(who, target string, status int) {
		all = append(all, question{who: who, method: http.MethodGet, target: target, status: status})
	}
	for _, namespace := range []string{"plain", "whole", "lean"} {
		in := fmt.Sprintf(list, namespace)
		for _, who := range []string{"reader", "tester", "account", "certified"} {
			get(who, in+"/a?resourceVersion=0", 200)
			get(who, in+"?resourceVersion=0", 200)
			get(who, in+"?watch=1&resourceVersion=0&timeoutSeconds=1", 200)
		}
		get("reader", in+"/b?resourceVersion=0", 404)
		get("reader", in+"?resourceVersion=0&limit=x", 400)
		get("reader", in+"?resourceVersion=0&labelSelector=app%3Da&fieldSelector=metadata.name%3Da", 200)
		get("reader", in+"?resourceVersion=0&labelSelector=x%20in%20(%3C,%26)", 400)
		get("reader", in+"?watch=1&resourceVersion=0&timeoutSeconds=1"+watchList, 200)
		get("reader", in+"?watch=1&timeoutSeconds=8"+watchList, 200)
		get("reader", in+"?watch=1&resourceVersion=x", 500)
		for _, target := range []string{"/a?resourceVersion=0", "?resourceVersion=0", "?watch=1&resourceVersion=0"} {
			get("nothing", in+target, 403)
		}
		all = append(all,
			question{"reader", http.MethodHead, in + "/a?resourceVersion=0", "", 405, false},
			question{"reader", http.MethodGet, in + "?resourceVersion=0", protobuf, 200, false},
			question{"reader", http.MethodGet, in + "/a?resourceVersion=0", protobuf, 200, false},
			question{"reader", http.MethodGet, in + "/a?resourceVersion=0", partial, 200, false},
			question{"reader", http.MethodGet, in + "?resourceVersion=0", partials, 200, false},
		)
	}
	get("reader", "/api/v1/configmaps?resourceVersion=0", 200)
	get("stranger", "/api/v1/configmaps?resourceVersion=0", 401)
	get("stranger", "/api/v1/configmaps?watch=1&resourceVersion=0", 401)
	get("reader", "/api/v1/watch/namespaces/plain/configmaps?resourceVersion=0&timeoutSeconds=1", 200)
	get("reader", fmt.Sprintf(list, "plain")+"?resourceVersion=999999999999", 504)
	all = append(all, question{"reader", http.MethodGet, fmt.Sprintf(list, "quiet") + "?resourceVersion=0", "", 200, true})
	return all
}

// ask sends a request, and reads the answer to its end.
func (w *world) ask(ctx context.Context, to wire.Address, http2 bool, q question, id string) (int, http.Header, error) {
	transport := &http.Transport{TLSClientConfig: to.TLS.Clone(), DisableKeepAlives: true, Protocols: new(http.Protocols)}
	defer transport.CloseIdleConnections()
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetHTTP2(http2)
	r, err := http.NewRequestWithContext(ctx, q.method, "https://"+to.Host+q.target, nil)
	if err != nil {
		return 0, nil, err
	}
	for name, values := range w.people[q.who].Header {
		r.Header[name] = values
	}
	r.Header.Set("Audit-Id", id)
	r.Header.Set("User-Agent", "audited/"+strings.Repeat("x", 1100))
	r.Header.Set("X-Forwarded-For", "10.0.0.7, 10.0.0.8")
	r.Header.Set("X-Real-Ip", "10.0.0.9")
	if q.accept != "" {
		r.Header.Set("Accept", q.accept)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header, err
}

// anothers are what two requests do not share.
var anothers = []string{"auditID", "requestReceivedTimestamp", "stageTimestamp"}

// current is the newest resourceVersion of all, as a refusal has it.
var current = regexp.MustCompile(`current: \d+`)

// comparable is an event without what two requests do not share.
func comparable(e event) event {
	for _, name := range anothers {
		delete(e, name)
	}
	if notes, ok := e["annotations"].(map[string]any); ok {
		for name := range notes {
			// of a request that took long: what the API server spent it on
			if strings.HasPrefix(name, "apiserver.latency.k8s.io/") {
				delete(notes, name)
			}
		}
	}
	for _, name := range []string{"responseStatus", "responseObject"} {
		about, _ := e[name].(map[string]any)
		if message, ok := about["message"].(string); ok {
			about["message"] = current.ReplaceAllString(message, "current: N")
		}
	}
	answer, _ := e["responseObject"].(map[string]any)
	if kind, _ := answer["kind"].(string); strings.HasSuffix(kind, "List") { // its own is the moment's newest
		delete(answer["metadata"].(map[string]any), "resourceVersion")
	}
	return e
}

// comparables are the texts of comparable events, whose keys are sorted.
func comparables(t *testing.T, all []event) (texts []string) {
	t.Helper()
	for _, e := range all {
		text, err := json.Marshal(comparable(e))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}

// proxy starts a proxy with an audit log.
func (w *world) proxy(t *testing.T, binary string, path string, flags ...string) *process.Proxy {
	t.Helper()
	flags = append([]string{"--resources=configmaps", "--audit-policy-file=" + policyFile(t, policy), "--audit-log-path=" +
		path}, flags...)
	return process.StartProxy(t, binary, append(w.ProxyFlags(), flags...)...)
}

// TestAuditLogMatchesUpstream is that both logs say the same of the same requests, and that what
// passes through is in upstream's alone.
func TestAuditLogMatchesUpstream(t *testing.T) {
	w := newWorld(t)
	binary := process.BuildProxy(t)
	t.Run("alike", func(t *testing.T) { w.alike(t, binary) })
	t.Run("unwritable", func(t *testing.T) { w.unwritable(t, binary) })
	t.Run("itself", func(t *testing.T) { w.itself(t, binary) })
}

// auditedRequest is a request that is sent to both, in one of the protocols.
type auditedRequest struct {
	question
	http2 bool
	ids   [2]string // directly, and through the proxy
}

func (a auditedRequest) String() string {
	return fmt.Sprintf("%s, %s %s %s, HTTP/2 %v", a.who, a.method, a.target, a.accept, a.http2)
}

func (w *world) alike(t *testing.T, binary string) {
	own := log{filepath.Join(t.TempDir(), "logs", "own.log")}
	proxy := w.proxy(t, binary, own.name, "--audit-fail-closed")
	var all []auditedRequest
	for i, q := range questions() {
		for _, http2 := range []bool{false, true} {
			all = append(all, auditedRequest{q, http2,
				[2]string{fmt.Sprintf("direct-%d-%v", i, http2), fmt.Sprintf("proxied-%d-%v", i, http2)}})
		}
	}
	const passed = "spillway_audit_passthrough_requests_total"
	before := process.Metric(t, proxy.Metrics, passed)
	w.askAll(t, proxy, all)
	for again := 1; again <= mostAgain; again++ { // what the disk took too long for says nothing
		late := process.Metric(t, proxy.Metrics, passed) - before
		if late == 0 {
			break
		}
		t.Logf("%d requests were passed through", late)
		before += late
		var some []auditedRequest
		for _, i := range w.passedThrough(t, all, late) {
			for side := range all[i].ids {
				all[i].ids[side] += fmt.Sprintf("-again-%d", again)
			}
			some = append(some, all[i])
		}
		w.askAll(t, proxy, some)
	}
	compared := 0
	for _, a := range all {
		direct, proxied := a.ids[0], a.ids[1]
		if theirs := w.upstream.of(t, proxied); len(theirs) > 0 {
			t.Errorf("%s: is in upstream's log, too: %v", a, theirs)
		}
		if a.silent {
			if theirs, ours := w.upstream.of(t, direct), own.of(t, proxied); len(theirs)+len(ours) > 0 {
				t.Errorf("%s: upstream %v, the proxy %v", a, theirs, ours)
			}
			continue
		}
		theirs, ours := comparables(t, w.upstream.ended(t, direct)), comparables(t, own.ended(t, proxied))
		if !slices.Equal(theirs, ours) {
			t.Errorf("%s: upstream\n%s\nand the proxy\n%s", a, strings.Join(theirs, "\n"), strings.Join(ours, "\n"))
		}
		compared += len(ours)
	}
	t.Logf("%d events of %d requests compared", compared, len(all))
	w.passing(t, proxy, own)
}

// mostAgain bounds how often a request that was passed through is repeated.
const mostAgain = 3

// passedThrough are the indexes of as many questions as the proxy says that it has passed through
// because its record was not written in time. More of them in upstream's log end the test: some
// were sent there for nothing.
func (w *world) passedThrough(t *testing.T, all []auditedRequest, many int) (indexes []int) {
	t.Helper()
	process.Awaiting(t, "upstream's events of what was passed through", func(context.Context) error {
		indexes = indexes[:0]
		for i, a := range all {
			if len(w.upstream.of(t, a.ids[1])) > 0 {
				indexes = append(indexes, i)
			}
		}
		if len(indexes) < many {
			return fmt.Errorf("%d of %d", len(indexes), many)
		}
		return nil
	})
	if len(indexes) > many {
		t.Fatalf("%d requests are in upstream's log, too, but %d were passed through", len(indexes), many)
	}
	return indexes
}

// askAll puts all questions to both, and ends the test if any was not answered as it must be.
func (w *world) askAll(t *testing.T, proxy *process.Proxy, all []auditedRequest) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for _, a := range all {
		for i, to := range []wire.Address{w.Direct(w.people[a.who]), authcluster.Through(proxy, w.people[a.who])} {
			group.Go(func() error {
				ctx, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				status, header, err := w.ask(ctx, to, a.http2, a.question, a.ids[i])
				if status != a.status || err != nil || header.Get("Audit-Id") != a.ids[i] {
					return fmt.Errorf("%s: %s: %d, %w, want %d; %v", a, a.ids[i], status, err, a.status, header)
				}
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// patience bounds how long an answer may take.
const patience = 2 * time.Minute

// passing is that what passes through is in upstream's log alone.
func (w *world) passing(t *testing.T, proxy *process.Proxy, own log) {
	t.Helper()
	for i, q := range []question{
		{"reader", http.MethodGet, fmt.Sprintf(list, "plain") + "/a", "", 200, false},
		{"reader", http.MethodGet, fmt.Sprintf(list, "plain") + "?resourceVersion=0",
			"application/json;as=Table;v=v1;g=meta.k8s.io", 200, false},
		{"reader", http.MethodDelete, fmt.Sprintf(list, "plain") + "/a", "", 403, false},
		{"nothing", http.MethodGet, "/api/v1/nodes?resourceVersion=0", "", 403, false},
	} {
		id := fmt.Sprintf("passed-%d", i)
		status, _, err := w.ask(t.Context(), authcluster.Through(proxy, w.people[q.who]), false, q, id)
		if status != q.status || err != nil {
			t.Fatalf("%s: %d, %v", q.target, status, err)
		}
		w.upstream.ended(t, id)
		if ours := own.of(t, id); len(ours) > 0 {
			t.Errorf("%s is in the proxy's log, too: %v", q.target, ours)
		}
	}
}

// unwritable is that upstream answers and puts on record what the proxy cannot, if that is
// required, and that the proxy answers otherwise.
func (w *world) unwritable(t *testing.T, binary string) {
	const full = "/dev/full" // takes nothing: no space left on device
	in := fmt.Sprintf(list, "plain")
	for _, required := range []bool{true, false} {
		proxy := w.proxy(t, binary, full, fmt.Sprintf("--audit-fail-closed=%v", required), "--audit-log-maxsize=0")
		for i, q := range []question{
			{"reader", http.MethodGet, in + "/a?resourceVersion=0", "", 200, false},
			{"reader", http.MethodGet, in + "?resourceVersion=0", "", 200, false},
			{"reader", http.MethodGet, in + "?watch=1&resourceVersion=0&timeoutSeconds=1", "", 200, false},
			{"nothing", http.MethodGet, in + "?resourceVersion=0", "", 403, false},
		} {
			for _, http2 := range []bool{false, true} {
				id := fmt.Sprintf("unwritable-%v-%d-%v", required, i, http2)
				status, header, err := w.ask(t.Context(), authcluster.Through(proxy, w.people[q.who]), http2, q, id)
				if status != q.status || err != nil {
					t.Fatalf("%s: %d, %v", id, status, err)
				}
				if required {
					w.upstream.ended(t, id)
				} else if theirs := w.upstream.of(t, id); len(theirs) > 0 || header.Get(exchange.FlowControl) != "" {
					t.Errorf("%s was passed through: %v", id, theirs)
				}
			}
		}
		passed := 0
		if required {
			passed = 8
		}
		if got := process.Metric(t, proxy.Metrics, "spillway_audit_passthrough_requests_total"); got != passed {
			t.Errorf("%v requests were passed through, want %v", got, passed)
		}
		if got := process.Metric(t, proxy.Metrics, "spillway_audit_failures_total"); got == 0 {
			t.Error("no failures were counted")
		}
	}
}

// itself checks that a client that acts as the proxy is on record as the user that upstream
// authenticates the proxy as.
func (w *world) itself(t *testing.T, binary string) {
	own := log{filepath.Join(t.TempDir(), "own.log")}
	all := policyFile(t, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n")
	proxy := process.StartProxy(t, binary, "--kubeconfig="+w.Kubeconfig(authcluster.Self), "--listen-identity=self",
		"--resources=configmaps",
		"--audit-policy-file="+all, "--audit-log-path="+own.name)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, proxy.Plain+fmt.Sprintf(list, "plain")+
		"?resourceVersion=0", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Audit-Id", "itself")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	last := own.ended(t, "itself")[1]
	user := last["user"].(map[string]any)
	known := user["username"] == string(authcluster.Self) && user["uid"] == string(authcluster.Self) &&
		strings.Contains(fmt.Sprint(user["groups"]), "system:authenticated")
	if response.StatusCode != http.StatusOK || !known || last["annotations"] != nil {
		t.Errorf("%d, %v", response.StatusCode, last)
	}
}
