package serve

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"spillway/internal/audit"
	"spillway/internal/fakeapiserver/rawclient"
	"spillway/internal/passthrough"
)

// panickingTransport is a transport with a bug that shows what it was working on.
type panickingTransport struct{ how func(r *http.Request) }

func (p panickingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	p.how(r)
	return nil, errors.New("not reached")
}

// The log says that there was a panic and where, and nothing of the request in which it happened.
func TestPanicsKeepRequestsSecret(t *testing.T) {
	const canary = "canary-of-a-token"
	for name, how := range map[string]func(r *http.Request){
		"a string":         func(r *http.Request) { panic("cannot parse " + r.Header.Get("Authorization")) },
		"an error":         func(r *http.Request) { panic(fmt.Errorf("cannot parse %v", r.Header)) },
		"a request":        func(r *http.Request) { panic(r) },
		"the runtime's":    func(r *http.Request) { _ = r.Header["Authorization"][len(r.Header)+100] },
		"a value in a map": func(r *http.Request) { panic(map[string]any{"headers": r.Header}) },
	} {
		t.Run(name, func(t *testing.T) {
			every(t, func(t *testing.T, o frontOptions) {
				core, logs := observer.New(zap.DebugLevel)
				o.mutate = func(f *passthrough.ForwarderOptions) {
					f.Client, f.Log = all(panickingTransport{how}), zap.New(core)
				}
				fr := newFront(t, http.NotFoundHandler(), o)
				client := fr.client(t)
				for _, target := range []string{"/x", "/x?watch=1"} {
					request, err := http.NewRequestWithContext(deadline(t), http.MethodPost, fr.url()+target,
						io.MultiReader(strings.NewReader(canary)))
					if err != nil {
						t.Fatal(err)
					}
					request.Header.Set("Authorization", "Bearer "+canary)
					if response, err := client.Do(request); err == nil {
						_ = response.Body.Close()
					}
				}
				if o.http2 {
					return // its server's log is another; http2Call uses the same field
				}
				panics := 0
				for _, entry := range logs.All() {
					line := entry.Message + fmt.Sprint(entry.ContextMap())
					if strings.Contains(line, canary) {
						t.Errorf("the log has the token: %s", line)
					}
					if strings.Contains(entry.Message, "panic") {
						panics++
					}
				}
				if panics == 0 {
					t.Errorf("no panic in the log: %v", logs.All())
				}
			})
		})
	}
}

func TestAPanicIsLoggedWithoutSecrets(t *testing.T) {
	var none []int
	for _, c := range []struct {
		how  func()
		want string
	}{
		{func() { panic("secret") }, "string"},
		{func() { panic(errors.New("secret")) }, "*errors.errorString"},
		{func() { _ = none[5] }, "runtime error: index out of range [5] with length 0"},
	} {
		func() {
			defer func() {
				if got := passthrough.PanicField(recover()).String; got != c.want {
					t.Errorf("panicField is %q, want %q", got, c.want)
				}
			}()
			c.how()
		}()
	}
}

// A watch that runs into a bug after it was counted, and before its delivery begins, is counted
// out: nothing waits for it.
func TestPanicBeforeDelivery(t *testing.T) {
	r := newRig(t, rigOptions{audit: new(audit.Logger)}) // which has no policy to ask
	for base, opts := range front1and2(t, r) {
		got, err := rawclient.List(deadline(t), base, inN+"?watch=1&resourceVersion=0", opts...)
		if err != nil || got.Status != http.StatusInternalServerError {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	streams := len(r.server.watches.Streams())
	if counted, watches := r.metric("spillway_watches"),
		r.metric("spillway_flowcontrol_in_use", "limit=watches"); streams != 0 || counted != 0 || watches != 0 {
		t.Fatalf("%d streams, %v counted, %v within the limits", streams, counted, watches)
	}
}
