package main

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"spillway/internal/config"
	"spillway/internal/fakeapiserver"
)

// pluginKubeconfig leads to an upstream by a credential plugin whose token ends at once, and which
// hangs while there is a file; the file's name is returned.
func pluginKubeconfig(t *testing.T, up *fakeapiserver.Server) (kubeconfig, hang string) {
	t.Helper()
	dir := t.TempDir()
	hang = filepath.Join(dir, "hang")
	command := filepath.Join(dir, "get-token")
	script := "#!/bin/sh\nwhile [ -e " + hang + " ]; do sleep 0.05; done\n" +
		`echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",` +
		`"status":{"token":"own","expirationTimestamp":"2001-01-01T00:00:00Z"}}'` + "\n"
	if err := os.WriteFile(command, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return writeFile(t, "kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: test, user: {exec: {command: %q, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}}]
`, up.URL, base64.StdEncoding.EncodeToString(up.Config().CAData), command)), hang
}

// While the plugin hangs, clients with tokens that are not known yet have the API server's answers,
// readiness follows its flag and names the plugin, and the process ends in time.
func TestPluginThatHangsStopsNothing(t *testing.T) {
	up := secureUpstream(t)
	up.Create(fakeapiserver.ConfigMaps, "n", "a")
	reviews := up.Reviews()
	reviews.Know("alice", authenticationv1.UserInfo{Username: "alice"})
	reviews.Know("bob", authenticationv1.UserInfo{Username: "bob"})
	reviews.Access(func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	})
	kubeconfig, hang := pluginKubeconfig(t, up)
	p := running(t, up, func(o *config.Settings) {
		o.Kubeconfig, o.InsecureAllowAll, o.ReadyzUpstreamTimeout = kubeconfig, false, time.Second
	})
	p.ready()
	if code, body, _ := p.getAs("alice", "/api/v1/configmaps?resourceVersion=0"); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	if err := os.WriteFile(hang, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(hang) }) // if it was not
	for _, path := range []string{"/api/v1/configmaps?resourceVersion=0", "/api/v1/configmaps", "/api/v1/pods"} {
		code, body, took := p.getAs("bob", path)
		if code != http.StatusOK || took > 10*time.Second {
			t.Errorf("GET %s: %d after %v: %s", path, code, took, body)
		}
	}
	eventually(t, "the proxy to be unready", func() bool {
		code, body := p.get(p.metrics + "/readyz")
		return code == http.StatusInternalServerError && strings.Contains(body, "get-token")
	})
	if n := p.logs.FilterMessageSnippet("no credentials for the API server").Len(); n != 1 {
		t.Errorf("%d lines tell of the plugin", n)
	}
	began := time.Now()
	p.stop()
	p.ends()
	if took := time.Since(began); took > endTimeout {
		t.Errorf("it ended after %v", took)
	}
	if err := os.Remove(hang); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// getAs is get at the TLS listener with a token, and how long it took.
func (p *proxy) getAs(token, path string) (code int, body string, took time.Duration) {
	p.t.Helper()
	began := time.Now()
	//nolint:gosec // a certificate that was just made up
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.tls+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(text), time.Since(began)
}
