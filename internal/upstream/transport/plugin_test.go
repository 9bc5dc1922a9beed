package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// pluginScript is a credential plugin whose token expires at once, so that each request runs it. It
// hangs while there is a file "hang" beside it, and fails while there is a file "fail".
const pluginScript = `#!/bin/sh
while [ -e "$(dirname "$0")/hang" ]; do sleep 0.05; done
[ -e "$(dirname "$0")/fail" ] && exit 3
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"plugin",
"expirationTimestamp":"2001-01-01T00:00:00Z"}}'
`

// pluginWorld is an upstream, and a transport to it whose credentials come from a plugin.
type pluginWorld struct {
	t       *testing.T
	dir     string
	factory *Factory
	own     http.RoundTripper
	url     string
	logs    *observer.ObservedLogs
}

// newPluginWorld has an upstream that answers 401 to requests without a token of the plugin's or of
// a client's, and to all others what status says.
func newPluginWorld(t *testing.T, status int) *pluginWorld {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer plugin", "Bearer client":
			w.WriteHeader(status)
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	command := filepath.Join(dir, "get-token")
	if err := os.WriteFile(command, []byte(pluginScript), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	core, logs := observer.New(zap.InfoLevel)
	factory, err := New(ConfigSource{Config: &rest.Config{Host: upstream.URL, ExecProvider: &clientcmdapi.ExecConfig{
		Command: command, Args: []string{"secret"}, APIVersion: "client.authentication.k8s.io/v1",
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}}, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	own, err := factory.Own(Mirrors)
	if err != nil {
		t.Fatal(err)
	}
	w := &pluginWorld{t: t, dir: dir, factory: factory, own: own, url: upstream.URL, logs: logs}
	t.Cleanup(func() { // no call is left
		w.set("hang", false)
		for range pluginCallLimit {
			factory.plugin.slots <- struct{}{}
		}
	})
	return w
}

func (w *pluginWorld) set(file string, there bool) {
	w.t.Helper()
	name, err := filepath.Join(w.dir, file), error(nil)
	if there {
		err = os.WriteFile(name, nil, 0o600)
	} else if err = os.Remove(name); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// get sends a request, with a token of a client's if there is one.
func (w *pluginWorld) get(ctx context.Context, token string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := w.own.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return response.StatusCode, nil
}

func (w *pluginWorld) messages() string {
	var all []string
	for _, e := range w.logs.All() {
		all = append(all, e.Message)
		if text := fmt.Sprint(e.ContextMap()); strings.Contains(text, "secret") {
			w.t.Errorf("the log tells its arguments: %s", text)
		}
	}
	return strings.Join(all, "; ")
}

const (
	lineWithout = "no credentials for the API server: only requests that bring their own reach it"
	lineAgain   = "the credential plugin answers again"
)

// While a plugin hangs, a request that needs it fails in time and names it, however many there are,
// and a few goroutines are all that it holds; one that brings its own credentials is sent; and all
// is as before once it answers.
func TestPluginThatHangsHoldsNoRequest(t *testing.T) {
	t.Parallel()
	w := newPluginWorld(t, http.StatusOK)
	if code, err := w.get(t.Context(), ""); code != http.StatusOK || err != nil {
		t.Fatalf("%d %v", code, err)
	}
	w.set("hang", true)
	began := time.Now()
	var all sync.WaitGroup
	for range 4 * pluginCallLimit {
		all.Go(func() {
			_, err := w.get(t.Context(), "")
			var missing *CredentialError
			if !errors.As(err, &missing) || !missing.Timeout() || filepath.Base(missing.Plugin) != "get-token" {
				t.Errorf("got %v", err)
			}
		})
	}
	if code, err := w.get(t.Context(), "client"); code != http.StatusOK || err != nil {
		t.Errorf("with a token of its own: %d %v", code, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.get(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that was cancelled: %v", err)
	}
	all.Wait()
	if took := time.Since(began); took > 2*credentialTimeout {
		t.Errorf("the last one had its error after %v", took)
	}
	if n := len(w.factory.plugin.slots); n > pluginCallLimit {
		t.Errorf("%d calls are under way", n)
	}
	began = time.Now()
	if _, err := w.get(t.Context(), ""); err == nil || time.Since(began) > credentialTimeout/2 {
		t.Errorf("a later one had %v after %v", err, time.Since(began))
	}
	if since, err := w.factory.CredentialTrouble(); err == nil || time.Since(since) < credentialTimeout {
		t.Errorf("%v since %v", err, since)
	}
	w.set("hang", false)
	for {
		if code, err := w.get(t.Context(), ""); err == nil && code == http.StatusOK {
			break
		}
	}
	if _, err := w.factory.CredentialTrouble(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if got := w.messages(); got != lineWithout+"; "+lineAgain {
		t.Errorf("logged %s", got)
	}
}

// An answer does not wait for a plugin that is run again because of it.
func TestPluginThatHangsAfterARefusal(t *testing.T) {
	t.Parallel()
	w := newPluginWorld(t, http.StatusUnauthorized)
	for range 3 * pluginCallLimit {
		// The plugin runs for the request, and hangs when it runs for the refusal.
		ctx, cancel := context.WithTimeout(t.Context(), 2*credentialTimeout)
		code, err := w.get(ctx, "")
		cancel()
		if err != nil {
			var missing *CredentialError
			if errors.As(err, &missing) && missing.Timeout() {
				return // by now nothing is sent any more
			}
			t.Fatal(err)
		}
		if code != http.StatusUnauthorized {
			t.Fatalf("got %d", code)
		}
		w.set("hang", true)
	}
	t.Error("every request was sent though the plugin hangs")
}

// A plugin that fails is named in the error and in one line.
func TestPluginThatFailsIsNamed(t *testing.T) {
	t.Parallel()
	w := newPluginWorld(t, http.StatusOK)
	w.set("fail", true)
	for range 3 {
		_, err := w.get(t.Context(), "")
		var missing *CredentialError
		if !errors.As(err, &missing) || missing.Timeout() || !strings.Contains(err.Error(), "get-token") {
			t.Fatalf("got %v", err)
		}
	}
	if since, err := w.factory.CredentialTrouble(); err == nil || since.IsZero() {
		t.Errorf("%v since %v", err, since)
	}
	w.set("fail", false)
	if code, err := w.get(t.Context(), ""); code != http.StatusOK || err != nil {
		t.Errorf("afterwards: %d %v", code, err)
	}
	if got := w.messages(); got != lineWithout+"; "+lineAgain {
		t.Errorf("logged %s", got)
	}
}
