package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/config"
	"spillway/internal/fakeapiserver"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/status"
)

// report is what the status page of a running program says as JSON.
func (p *proxy) report() *status.Report {
	p.t.Helper()
	code, body := p.get(p.metrics + "/statusz?format=json")
	var r status.Report
	if err := json.Unmarshal([]byte(body), &r); code != http.StatusOK || err != nil {
		p.t.Fatalf("%d %v %s", code, err, body)
	}
	return &r
}

func TestStatusPage(t *testing.T) {
	up := secureUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	up.Create(fakeapiserver.ConfigMaps, "n", "b")
	p := running(t, up, func(o *config.Settings) { o.MemoryBudget = 1 << 30 })
	p.ready()
	p.watching(p.plain, "&labelSelector=app%3Dweb")
	p.watching(p.tls, "")
	var r *status.Report
	eventually(t, "two watches", func() bool {
		r = p.report()
		return r.Watches.Total == 2
	})
	by := map[string]*status.Watch{}
	for _, w := range r.Watches.Items {
		by[w.LabelSelector] = w
		if w.Resource != "configmaps" || w.Version != "v1" || w.User != "" || w.Peer == "" || w.Encoding != "json" {
			t.Errorf("%+v", w)
		}
	}
	if len(by) != 2 || by["app=web"] == nil {
		t.Errorf("%v", by)
	}
	if len(r.Resources) != 1 {
		t.Fatalf("%d resources", len(r.Resources))
	}
	if m := r.Resources[0]; m.Resource != "configmaps" || !m.Synced || m.Objects != 2 || m.ObjectBytes == 0 ||
		m.Watches != 2 || m.StateAgeSeconds != 0 || m.ResourceVersion == "0" || m.Since.IsZero() {
		t.Errorf("%+v", m)
	}
	if r.Upstream.Host != up.URL || len(r.Upstream.StaleResources) != 0 || r.Memory.LimitBytes == 0 ||
		r.Version != versionText() ||
		r.UptimeSeconds <= 0 {
		t.Errorf("%+v %+v %s %g", r.Upstream, r.Memory, r.Version, r.UptimeSeconds)
	}
	for query, want := range map[string]string{"": "<title>Spillway status</title>",
		"?format=fragment": `id="watches-body"`} {
		if code, body := p.get(p.metrics + "/statusz" + query); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	if _, body := p.get(p.metrics + "/"); !strings.Contains(body, "/statusz\n") {
		t.Errorf("the index lacks it: %s", body)
	}
}

// The status page alone names the user whose requests a limit rejects (D16).
func TestStatusPageNamesRejectedUsers(t *testing.T) {
	up := secureUpstream(t)
	reviews := up.Reviews()
	reviews.Know("token", authenticationv1.UserInfo{Username: "alice"})
	reviews.Access(func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	})
	p := running(t, up, func(o *config.Settings) {
		o.InsecureAllowAll, o.Limits.QPSPerUser, o.Limits.BurstPerUser = false, 0.001, 1
	})
	p.ready()
	if r := p.report(); r.Rejections == nil || len(r.Rejections) > 0 {
		t.Fatalf("%+v", r.Rejections)
	}
	if code, body, _ := p.getAs("token", "/api/v1/configmaps?resourceVersion=0"); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	codes := map[int]int{}
	for range 4 {
		code, _, _ := p.getAs("token", "/api/v1/pods")
		codes[code]++
	}
	if codes[http.StatusTooManyRequests] != 3 {
		t.Fatalf("%v", codes)
	}
	eventually(t, "the user on the page", func() bool { // a report is kept for a second
		all := p.report().Rejections
		return len(all) == 1 && all[0].User == "alice" && all[0].Count == 3 && all[0].Peer == "" &&
			all[0].Reason == "user-rate" && all[0].Limit == "passthrough_requests" && !all[0].At.Before(all[0].Since)
	})
	if _, body := p.get(p.metrics + "/statusz"); !strings.Contains(body, "Rejected last") ||
		!strings.Contains(body, "alice") {
		t.Errorf("the page lacks it: %s", body)
	}
	if _, body := p.get(p.metrics + "/metrics"); strings.Contains(body, "alice") {
		t.Error("a metric names the user")
	}
	for _, line := range p.logs.All() {
		if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, "alice") {
			t.Errorf("the log names the user: %s", text)
		}
	}
}

// Secrets are watched by their names, which the page does not show.
func TestStatusPageHidesNamesOfSecrets(t *testing.T) {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	up := fakeapiserver.New(
		fakeapiserver.Options{TLS: true,
			Resources: []fakeapiserver.Resource{{GVR: secrets, Kind: "Secret", Namespaced: true}}})
	t.Cleanup(up.Close)
	up.Create(secrets, "n", "the-password")
	p := running(t, up, func(o *config.Settings) { o.Resources = []string{"secrets"} })
	p.ready()
	for _, path := range []string{
		"/api/v1/namespaces/n/secrets?watch=1&fieldSelector=metadata.name%3Dthe-password",
		"/api/v1/watch/namespaces/n/secrets/the-password", "/api/v1/secrets?watch=1&labelSelector=of%3Dthe-password",
	} {
		w := rawclient.Watch(t.Context(), p.plain, path)
		t.Cleanup(w.Close)
		if code, _, err := w.Head(t.Context()); err != nil || code != http.StatusOK {
			t.Fatalf("%s: %d %v", path, code, err)
		}
	}
	eventually(t, "the watches", func() bool { return p.report().Watches.Total >= 2 })
	for _, query := range []string{"", "?format=json"} {
		if _, body := p.get(p.metrics + "/statusz" + query); strings.Contains(body, "the-password") ||
			!strings.Contains(body, "(hidden)") {
			t.Errorf("%s tells of %s", query, body)
		}
	}
}
