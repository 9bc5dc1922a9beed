package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	internal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"spillway/internal/apistatus"
	"spillway/internal/audit"
	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/passthrough"
)

// journal is what an audit log is written to. It may be full.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
	full bool
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.full {
		return 0, errors.New("no space left on device")
	}
	return j.text.Write(b)
}

func (j *journal) fill(full bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.full = full
}

// of are the events of a request.
func (j *journal) of(t *testing.T, id string) (all []auditv1.Event) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range bytes.Lines(j.text.Bytes()) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if string(e.AuditID) == id {
			all = append(all, e)
		}
	}
	return all
}

func stagesOf(all []auditv1.Event) (stages []string) {
	for _, e := range all {
		stages = append(stages, string(e.Stage))
	}
	return stages
}

var answeredStages = []string{"RequestReceived", "ResponseComplete"}

// audited is a rig of which a record is kept.
func audited(t *testing.T, level internal.Level, required bool, o rigOptions) (*rig, *journal) {
	t.Helper()
	j := &journal{}
	o.audit = audit.New(audit.Options{
		Policy: &audit.Policy{Rules: []internal.PolicyRule{{Level: level}}}, Out: j, FailClosed: required, Log: zap.NewNop(),
	})
	t.Cleanup(func() { _ = o.audit.Close() })
	up := fakeapiserver.New(o.up)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	r := rigOf(t, up, o)
	if o.access {
		r.people()
	}
	return r, j
}

// front1and2 are the ways to a rig.
func front1and2(t *testing.T, r *rig) map[string][]rawclient.RequestOption {
	return map[string][]rawclient.RequestOption{r.url: nil, r.tlsURL: {rawclient.Through(overHTTP2(t, 1<<20))}}
}

// Whatever is answered here is on record by the time the answer is there, under the id that the
// answer has; what passes through is not.
func TestAnAnswerFromMemoryIsOnRecordFirst(t *testing.T) {
	t.Parallel()
	r, j := audited(t, internal.LevelMetadata, false, rigOptions{access: true})
	for _, c := range []struct {
		name, target, token string
		code                int
		recorded            bool
		decision            string
	}{
		{"get", inN + "/a?resourceVersion=0", "alice", 200, true, "allow"},
		{"list", inN + "?resourceVersion=0", "alice", 200, true, "allow"},
		{"not there", inN + "/b?resourceVersion=0", "alice", 404, true, "allow"},
		{"malformed", inN + "?resourceVersion=0&limit=x", "alice", 400, true, "allow"},
		{"forbidden", inM + "?resourceVersion=0", "alice", 403, true, "forbid"},
		{"consistent get", inN + "/a", "alice", 200, false, ""},
		{"nobody", inN + "?resourceVersion=0", "mallory", 200, false, ""},
		{"not mirrored", "/api/v1/namespaces/n/nothing", "alice", 404, false, ""},
	} {
		for base, opts := range front1and2(t, r) {
			for _, id := range []string{"", "an-id-of-" + c.name + base} {
				opts := append(slices.Clone(opts), bearing(c.token), rawclient.Header("X-Forwarded-For", "10.0.0.7"))
				if id != "" {
					opts = append(opts, rawclient.Header("Audit-Id", id))
				}
				got, err := rawclient.List(deadline(t), base, c.target, opts...)
				if err != nil {
					t.Fatal(err)
				}
				if got.Status != c.code || id != "" && got.Header.Get(apistatus.AuditIDHeader) != id {
					t.Fatalf("%s: %d %v", c.name, got.Status, got.Header)
				}
				events := j.of(t, got.Header.Get(apistatus.AuditIDHeader))
				if !c.recorded {
					if len(events) > 0 || !upstreams(got.Header) {
						t.Errorf("%s: %v", c.name, events)
					}
					continue
				}
				if !slices.Equal(stagesOf(events), answeredStages) {
					t.Fatalf("%s: %q", c.name, stagesOf(events))
				}
				e := events[1]
				if e.ResponseStatus.Code != int32(c.code) || e.User.Username != "alice" || e.RequestURI != c.target ||
					e.ObjectRef.Resource != "configmaps" ||
					e.Annotations["authorization.k8s.io/decision"] != c.decision || e.SourceIPs[0] != "10.0.0.7" ||
					(c.code == 200) != (e.ResponseStatus.Reason == "") {
					t.Errorf("%s: %+v", c.name, e)
				}
			}
		}
	}
}

// The beginning of a watch is on record before its head, and its end when it has ended.
func TestRecordOfWatches(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, goroutines bool) {
		r, j := audited(t, internal.LevelRequestResponse, true, rigOptions{access: true, goroutines: goroutines})
		for base, opts := range front1and2(t, r) {
			w := rawclient.Watch(deadline(t), base, inN+"?watch=1&resourceVersion=0", append(opts, bearing("alice"))...)
			code, head, err := w.Head(deadline(t))
			if code != http.StatusOK || err != nil {
				t.Fatalf("%d, %v", code, err)
			}
			id := head.Get(apistatus.AuditIDHeader)
			if got := stagesOf(j.of(t, id)); !slices.Equal(got, []string{"RequestReceived", "ResponseStarted"}) {
				t.Errorf("at its beginning: %q", got)
			}
			w.Close()
			eventually(t, "the end to be on record", func() bool { return len(j.of(t, id)) == 3 })
			if last := j.of(t, id)[2]; last.Stage != auditv1.StageResponseComplete || last.ResponseStatus.Code != 200 ||
				last.Verb != "watch" || last.ResponseObject != nil {
				t.Errorf("%+v", last)
			}
		}
	})
}

// The answer itself is on record where the policy wants it, as JSON whatever the client got; too
// large ones are left out, and that is said.
func TestRecordOfAnswers(t *testing.T) {
	t.Parallel()
	r, j := audited(t, internal.LevelRequestResponse, false, rigOptions{access: true})
	for target, kind := range map[string]string{
		inN + "/a?resourceVersion=0": "ConfigMap", inN + "?resourceVersion=0": "ConfigMapList", inN +
			"/b?resourceVersion=0": "Status", inM + "?resourceVersion=0": "Status",
	} {
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
			got := r.list(target, bearing("alice"), rawclient.Header("Accept", accept))
			events := j.of(t, got.Header.Get(apistatus.AuditIDHeader))
			if len(events) != 2 {
				t.Fatalf("%s, %s: %d, %v", target, accept, got.Status, events)
			}
			var told struct{ Kind string }
			if err := json.Unmarshal(events[1].ResponseObject.Raw, &told); err != nil || told.Kind != kind {
				t.Errorf("%s, %s: %s, %v", target, accept, events[1].ResponseObject.Raw, err)
			}
			if accept == "application/json" && string(events[1].ResponseObject.Raw) != strings.TrimSuffix(string(got.Body),
				"\n") {
				t.Errorf("%s\n%s", events[1].ResponseObject.Raw, got.Body)
			}
		}
	}
	for i := range 5 {
		r.up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint("large-", i), fakeapiserver.WithPadding(audit.MaxObject/4))
	}
	r.mirrored(configMaps)
	got := r.list(inN+"?resourceVersion=0", bearing("alice"))
	last := j.of(t, got.Header.Get(apistatus.AuditIDHeader))[1]
	if len(got.Body) < audit.MaxObject || last.ResponseObject != nil ||
		last.Annotations["audit.k8s.io/truncated"] != "true" {
		t.Errorf("%d bytes; %v", len(got.Body), last.Annotations)
	}
}

// If a record is required, upstream answers requests that cannot be recorded; if none is, they are
// answered from memory.
func TestRecordRequired(t *testing.T) {
	t.Parallel()
	for _, required := range []bool{true, false} {
		r, j := audited(t, internal.LevelMetadata, required, rigOptions{access: true})
		for base, opts := range front1and2(t, r) {
			opts := append(opts, bearing("alice"))
			targets := []string{inN + "/a?resourceVersion=0", inN + "?resourceVersion=0", inM + "?resourceVersion=0"}
			ask := func(upstream bool) {
				t.Helper()
				for _, target := range targets {
					got, err := rawclient.List(deadline(t), base, target, opts...)
					if err != nil || upstreams(got.Header) != upstream || len(got.Header[apistatus.AuditIDHeader]) != 1 ||
						len(got.Header["Content-Type"]) != 1 {
						t.Fatalf("required: %v, %s: %v, %+v", required, target, err, got)
					}
				}
				w := rawclient.Watch(deadline(t), base, inN+"?watch=1&resourceVersion=0", opts...)
				defer w.Close()
				if code, head, err := w.Head(deadline(t)); code != http.StatusOK || err != nil || upstreams(head) != upstream {
					t.Fatalf("required: %v: %d %v, %v", required, code, head, err)
				}
				if e, err := w.Next(deadline(t)); err != nil || e.String() == "" {
					t.Fatal(err)
				}
			}
			ask(false)
			j.fill(true)
			ask(required)
			j.fill(false)
			ask(false)
		}
		r.server.cpu.Acquire() // nothing holds on to what was not served
		r.server.cpu.Release()
		eventually(t, "the watches to end", func() bool { return r.metric("spillway_watches") == 0 })
	}
}

// A request that runs into a bug is on record as such.
func TestRecordOfPanics(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	r, j := audited(t, internal.LevelMetadata, false,
		rigOptions{access: true, stalest: time.Hour, age: func() (time.Duration, bool) {
			if broken.Load() {
				panic("secret")
			}
			return 0, false
		}})
	broken.Store(true)
	for base, opts := range front1and2(t, r) {
		id := "of-a-panic-at-" + base
		got, err := rawclient.List(deadline(t), base, inN+"?resourceVersion=0",
			append(opts, bearing("alice"), rawclient.Header("Audit-Id", id))...)
		if err != nil || got.Status != http.StatusInternalServerError {
			t.Fatalf("%+v, %v", got, err)
		}
		events := j.of(t, id)
		if !slices.Equal(stagesOf(events), []string{"RequestReceived", "Panic"}) || events[1].ResponseStatus.Code != 500 ||
			strings.Contains(fmt.Sprint(events), "secret") {
			t.Errorf("%+v", events)
		}
	}
}

// A request that acts as the proxy is recorded with the proxy's identity, and one on a listener
// without authentication with no user.
func TestARequestAsTheProxyIsRecordedWithItsIdentity(t *testing.T) {
	t.Parallel()
	r, j := audited(t, internal.LevelMetadata, false, rigOptions{identity: passthrough.IdentitySelf})
	got := r.list(inN + "?resourceVersion=0")
	if e := j.of(t, got.Header.Get(apistatus.AuditIDHeader))[1]; e.User.Username != "the proxy" || e.Annotations != nil {
		t.Errorf("%+v", e)
	}
	r, j = audited(t, internal.LevelMetadata, false, rigOptions{})
	got = r.list(inN + "?resourceVersion=0")
	if e := j.of(t, got.Header.Get(apistatus.AuditIDHeader))[1]; e.User.Username != "" || e.Annotations != nil {
		t.Errorf("%+v", e)
	}
}
