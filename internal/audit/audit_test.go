package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	rules "k8s.io/apiserver/pkg/audit"
	upstreams "k8s.io/apiserver/plugin/pkg/audit/log"

	"spillway/internal/auth"
)

// failingFile is what a log is written on. It may tear or be used up.
type failingFile struct {
	mu   sync.Mutex
	text bytes.Buffer
	left int // bytes that can be written before it fails; negative: any number
}

var errUsedUp = errors.New("no space left on device")

func (p *failingFile) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left < 0 || len(b) <= p.left {
		return p.text.Write(b)
	}
	n, _ := p.text.Write(b[:p.left])
	p.left = 0
	return n, errUsedUp
}

func (p *failingFile) room(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = n
}

// events are the lines, of which none may be anything but an event.
func (p *failingFile) events(t *testing.T) []auditv1.Event {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []auditv1.Event
	for line := range bytes.Lines(p.text.Bytes()) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

func stages(all []auditv1.Event) (stages []string) {
	for _, e := range all {
		stages = append(stages, string(e.Stage))
	}
	return stages
}

// counted are the metrics, by what is between their common ends.
func counted(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		name := strings.TrimSuffix(strings.TrimPrefix(family.GetName(), "spillway_audit_"), "_total")
		all[name] = family.GetMetric()[0].GetCounter().GetValue()
	}
	return all
}

// levels is a policy by verbs.
var levels = &Policy{
	OmitStages: []internal.Stage{internal.StagePanic},
	Rules: []internal.PolicyRule{
		{Level: internal.LevelNone, Verbs: []string{"none"}},
		{Level: internal.LevelMetadata, Verbs: []string{"get"}},
		{Level: internal.LevelMetadata, Verbs: []string{"end"}, OmitStages: []internal.Stage{internal.StageRequestReceived,
			internal.StageResponseStarted}},
		{Level: internal.LevelRequestResponse, UserGroups: []string{"whole"}},
		{Level: internal.LevelRequest, Verbs: []string{"list"}},
	},
}

// newLog is a log in a failingFile.
func newLog(t *testing.T, o Options) (*Logger, *failingFile) {
	t.Helper()
	p := &failingFile{left: -1}
	o.Policy, o.Out = levels, p
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	l := New(o)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, p
}

func request(verb string, groups ...string) RequestInfo {
	return RequestInfo{
		ID: "id", Received: time.Unix(1, 2000), URI: "/api/v1/namespaces/n/pods?a=b&c=<d>",
		What: auth.Attributes{Verb: verb, Version: "v1", Resource: "pods", Namespace: "n"},
		Who: auth.NewIdentity(authenticationv1.UserInfo{
			Username: "alice", UID: "7", Groups: append([]string{"dev"}, groups...),
			Extra: map[string]authenticationv1.ExtraValue{"team": {"a", "b"}},
		}),
		Decision: "allow", Reason: "so it is",
		Header: http.Header{"User-Agent": {"kubectl"}, "X-Forwarded-For": {"10.0.0.7, 10.0.0.8"}, "X-Real-Ip": {"10.0.0.9"}},
		Remote: "127.0.0.1",
	}
}

var ok = ResponseInfo{Code: http.StatusOK, Object: []byte(`{"kind":"Pod"}`)}

// A policy decides what is put on record, by kube-apiserver's own rules.
func TestPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t, Options{})
		if l.Entry(request("none")) != nil || l.Entry(request("unknown")) != nil {
			t.Error("a request is put on record that the policy does not want")
		}
		for _, c := range []struct {
			request RequestInfo
			level   string
			object  bool
			stages  []string
		}{
			{request("get"), "Metadata", false, []string{"RequestReceived", "ResponseComplete"}},
			{request("end"), "Metadata", false, []string{"ResponseComplete"}},
			{request("list"), "Request", false, []string{"RequestReceived", "ResponseComplete"}},
			{request("delete", "whole"), "RequestResponse", true, []string{"RequestReceived", "ResponseComplete"}},
		} {
			p.text.Reset()
			e := l.Entry(c.request)
			if e.Whole() != c.object {
				t.Errorf("%s: whole is %v", c.request.What.Verb, e.Whole())
			}
			if err := e.Answered(ok); err != nil {
				t.Fatal(err)
			}
			all := p.events(t)
			if !slices.Equal(stages(all), c.stages) {
				t.Errorf("%s: stages %q, want %q", c.request.What.Verb, stages(all), c.stages)
			}
			if last := all[len(all)-1]; string(last.Level) != c.level || (last.ResponseObject != nil) != c.object {
				t.Errorf("%s: %+v", c.request.What.Verb, last)
			}
		}
	})
}

// What is written is, byte for byte, what kube-apiserver writes for such an event.
func TestFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t, Options{})
		missing := &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status"}, ListMeta: metav1.ListMeta{ResourceVersion: "9"},
			Status: metav1.StatusFailure, Message: `no "pods"`, Reason: metav1.StatusReasonNotFound,
			Details: &metav1.StatusDetails{Name: "x"}, Code: 404,
		}
		long := request("get")
		long.Header = http.Header{"User-Agent": {strings.Repeat("a", userAgentMaxBytes+1)}}
		nobody := RequestInfo{ID: "x", Received: time.Unix(3, 0), What: auth.Attributes{Verb: "get", Path: "/version"}}
		for _, write := range []func() error{
			func() error { return l.Entry(request("get")).Answered(ok) },
			func() error { return l.Entry(request("get", "whole")).Started(200) },
			func() error { return l.Entry(request("delete", "whole")).Answered(ok) },
			func() error {
				return l.Entry(request("delete", "whole")).Answered(ResponseInfo{Code: 404, Status: missing, Truncated: true})
			},
			func() error { return l.Entry(long).Refused(ResponseInfo{Code: 401}) },
			func() error { return l.Entry(nobody).Panicked() },
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
		var theirs bytes.Buffer
		backend := upstreams.NewBackend(&theirs, upstreams.FormatJson, auditv1.SchemeGroupVersion)
		for _, e := range p.events(t) {
			var event internal.Event
			if err := rules.Scheme.Convert(&e, &event, nil); err != nil {
				t.Fatal(err)
			}
			if !backend.ProcessEvents(&event) {
				t.Fatal("kube-apiserver does not write it")
			}
		}
		if ours := p.text.String(); ours != theirs.String() || strings.Count(ours, "\n") != 10 {
			t.Errorf("%d lines\n%s\nkube-apiserver's:\n%s", strings.Count(ours, "\n"), ours, theirs.String())
		}
	})
}

// What an event says is what was said of the request and of its answer, and before there was an
// answer nothing of that.
func TestEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t, Options{})
		if err := l.Entry(request("get")).Answered(ok); err != nil {
			t.Fatal(err)
		}
		all := p.events(t)
		received, complete := all[0], all[1]
		if received.ResponseStatus != nil || received.Annotations != nil ||
			!received.StageTimestamp.Equal(&received.RequestReceivedTimestamp) {
			t.Errorf("received: %+v", received)
		}
		if complete.ResponseStatus.Code != 200 || complete.Annotations[decisionAnnotation] != "allow" ||
			complete.Annotations[reasonAnnotation] != "so it is" ||
			!complete.StageTimestamp.After(complete.RequestReceivedTimestamp.Time) {
			t.Errorf("complete: %+v", complete)
		}
		if complete.User.Username != "alice" || complete.User.UID != "7" ||
			!slices.Equal(complete.User.Extra["team"], []string{"a", "b"}) ||
			!slices.Equal(complete.SourceIPs, []string{"10.0.0.7", "10.0.0.8", "10.0.0.9", "127.0.0.1"}) ||
			complete.ObjectRef.Namespace != "n" || complete.UserAgent != "kubectl" {
			t.Errorf("%+v", complete)
		}
	})
}

// Managed fields are left out where the policy says so, of objects and of lists, and nothing else
// is.
func TestManagedFields(t *testing.T) {
	got := withoutManagedFields(
		[]byte(`{"metadata":{"managedFields":[1],"name":"l"},` +
			`"items":[{"metadata":{"managedFields":[1],"generation":12345678901234567890}},{"x":1}]}`))
	if want := `{"items":[{"metadata":{"generation":12345678901234567890}},{"x":1}],"metadata":{"name":"l"}}`; string(
		got) != want {
		t.Errorf("%s", got)
	}
	if got := withoutManagedFields([]byte(`[`)); got != nil {
		t.Errorf("%s", got)
	}
	l := New(Options{Out: &failingFile{left: -1}, Log: zap.NewNop(),
		Policy: &Policy{OmitManagedFields: true, Rules: []internal.PolicyRule{{Level: internal.LevelRequestResponse}}}})
	defer l.Close()
	e := l.Entry(request("get"))
	e.respond(ResponseInfo{Code: 200, Object: []byte(`{"metadata":{"managedFields":[1]}}`)})
	if raw := string(e.event.ResponseObject.Raw); raw != `{"metadata":{}}` {
		t.Errorf("%s", raw)
	}
}

// A write that fails is an error for the answers that wait for it, counted, and logged once; what
// is written after it is in lines of its own.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		registry := prometheus.NewRegistry()
		l, p := newLog(t, Options{Log: zap.New(core), Metrics: NewMetrics(registry)})
		p.room(10)
		for range 3 {
			if err := l.Entry(request("get")).Answered(ok); !errors.Is(err, errUsedUp) {
				t.Fatalf("got %v", err)
			}
		}
		p.room(-1)
		for range 2 {
			if err := l.Entry(request("end")).Answered(ok); err != nil {
				t.Fatal(err)
			}
		}
		lines := strings.Split(strings.TrimSuffix(p.text.String(), "\n"), "\n")
		if len(lines) != 3 || len(lines[0]) != 10 || !json.Valid([]byte(lines[1])) || !json.Valid([]byte(lines[2])) {
			t.Errorf("%q", lines)
		}
		if got, want := counted(t, registry),
			(map[string]float64{"events": 2, "failures": 6, "passthrough_requests": 0}); !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
		synctest.Wait()
		if n := logs.FilterMessage("the audit log cannot be written").Len(); n != 1 || logs.Len() != 2 {
			t.Errorf("%v", logs.All())
		}
	})
}

// Ends of watches are written without a caller that waits, and all of them before the log is
// closed.
func TestEnds(t *testing.T) {
	p, registry := &failingFile{left: -1}, prometheus.NewRegistry()
	l := New(Options{Policy: levels, Out: p, Log: zap.NewNop(), Metrics: NewMetrics(registry)})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				e := l.Entry(request("end"))
				if err := e.Started(200); err != nil {
					t.Error(err)
				}
				e.Ended()
			}
		})
	}
	all.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(p.events(t)); n != 400 {
		t.Errorf("%d ends", n)
	}
	e := l.Entry(request("end"))
	e.Ended()
	if n := counted(t, registry)["failures"]; n != 1 {
		t.Errorf("%v failures after the end", n)
	}
}
