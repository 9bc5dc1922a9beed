package admission

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"spillway/internal/sidecar/inject"
	"spillway/internal/testutil"
)

// repeat is a list of n items.
func repeat(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }

// hostile are pods that are small as they arrive and large when they are decoded, of about so many
// bytes each.
func hostile(size int) map[string]string {
	of := func(before, item, after string) string { return before + repeat(item, size/(len(item)+1)) + after }
	numbered := func(before, item, after string) string {
		var items strings.Builder
		for i := 0; items.Len() < size; i++ {
			fmt.Fprintf(&items, item+",", i)
		}
		return before + strings.TrimSuffix(items.String(), ",") + after
	}
	return map[string]string{
		"containers":      of(`{"spec": {"containers": [`, `{}`, `]}}`),
		"init containers": of(`{"spec": {"initContainers": [`, `{}`, `]}}`),
		"env":             of(`{"spec": {"containers": [{"env": [`, `{}`, `]}]}}`),
		"named env":       of(`{"spec": {"containers": [{"env": [`, `{"name":"a"}`, `]}]}}`),
		"mounts":          of(`{"spec": {"containers": [{"volumeMounts": [`, `{}`, `]}]}}`),
		"pointers": of(`{"spec": {"containers": [{"volumeMounts": [`,
			`{"mountPropagation":"","recursiveReadOnly":""}`, `]}]}}`),
		"values of env": of(`{"spec": {"containers": [{"env": [`, `{"value":"a","valueFrom":{}}`, `]}]}}`),
		"envFrom":       of(`{"spec": {"containers": [{"envFrom": [`, `{}`, `]}]}}`),
		"requests":      of(`{"spec": {"containers": [`, `{"resources":{"requests":{"a":1},"limits":{"b":2}}}`, `]}}`),
		"one request":   of(`{"spec": {"containers": [`, `{"resources":{"requests":{"":1}}}`, `]}}`),
		"amounts":       numbered(`{"spec": {"resources": {"limits": {`, `"%d":1`, `}}}}`),
		"sources":       of(`{"spec": {"volumes": [{"projected": {"sources": [`, `{}`, `]}}]}}`),
		"tokens":        of(`{"spec": {"volumes": [{"projected": {"sources": [`, `{"serviceAccountToken":{}}`, `]}}]}}`),
		"items": of(`{"spec": {"volumes": [{"projected": {"sources": [{"configMap": {"items": [`, `{}`,
			`]}}]}}]}}`),
		"ports":         of(`{"spec": {"containers": [{"ports": [`, `{}`, `]}]}}`),
		"volumes":       of(`{"spec": {"volumes": [`, `{}`, `]}}`),
		"annotations":   numbered(`{"metadata": {"annotations": {`, `"%d":""`, `}}}`),
		"owners":        of(`{"metadata": {"ownerReferences": [`, `{}`, `]}}`),
		"labels":        numbered(`{"metadata": {"labels": {`, `"%d":"a"`, `}}}`),
		"node selector": numbered(`{"spec": {"nodeSelector": {`, `"%d":""`, `}}}`),
		"same key":      of(`{"spec": {`, `"containers":[{}]`, `}}`),
		"same map":      of(`{"metadata": {`, `"labels":{"a":"b"}`, `}}`),
		"unknown":       of(`{"unknown": [`, `[]`, `]}`),
		"numbers":       of(`{"unknown": [`, `1`, `]}`),
		"wrong types":   of(`{"spec": {"containers": [`, `""`, `]}}`),
		"nesting":       `{"unknown": ` + strings.Repeat("[", size/2) + strings.Repeat("]", size/2) + `}`,
		"a long string": `{"metadata": {"name": "` + strings.Repeat("a", size) + `"}}`,
		"no ASCII":      `{"metadata": {"name": "` + strings.Repeat("é", size/2) + `"}}`,
		"a long key":    `{"metadata": {"annotations": {"` + strings.Repeat("a", size) + `": ""}}}`,
		"escapes":       `{"metadata": {"name": "` + strings.Repeat(`\u00e9`, size/6) + `"}}`,
		"a long number": `{"spec": {"hostNetwork": ` + strings.Repeat("1", size) + `}}`,
	}
}

// TestWeightBoundsWhatIsAllocated: decoding any review allocates no more than it weighs.
func TestWeightBoundsWhatIsAllocated(t *testing.T) {
	for shape, object := range hostile(32 << 10) {
		text := []byte(reviewOf(object, ""))
		weight, _ := weigh(text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := decode(text)
		runtime.ReadMemStats(&after)
		allocated := int64(after.TotalAlloc - before.TotalAlloc)
		t.Logf("%s: %d bytes weigh %d, allocated %d", shape, len(text), weight, allocated)
		if allocated > weight {
			t.Errorf("%s: %d bytes weigh %d, but become %d", shape, len(text), weight, allocated)
		}
		runtime.KeepAlive(r)
		runtime.KeepAlive(err)
	}
}

// marksLimitBytes bounds the patch of a pod that is not injected.
const marksLimitBytes = textLimitBytes + 200

// A pod that is too much is admitted as it is, with a warning that fits into a header.
func TestTooMuchIsAdmitted(t *testing.T) {
	for shape, object := range hostile(512 << 10) {
		t.Run(shape, func(t *testing.T) {
			r := response(t, reviewOf(object, ""))
			if len(r.Patch) > marksLimitBytes || len(r.Warnings) > 1 ||
				len(r.Warnings) == 1 && len(r.Warnings[0]) > textLimitBytes+40 {
				t.Errorf("patch of %d bytes, warnings %.200q", len(r.Patch), r.Warnings)
			}
		})
	}
	f := func(body, warning string) {
		t.Helper()
		if r := response(t, body); len(r.Patch) > marksLimitBytes || len(r.Warnings) != 1 ||
			!strings.HasPrefix(r.Warnings[0], "spillway: not injected: "+warning) {
			t.Errorf("%.100s: %d, %q; want %q", body, len(r.Patch), r.Warnings, warning)
		}
	}
	mount := `"volumeMounts": [{"name": "kube-api-access-x", ` +
		`"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]`
	long := strings.Replace(mount, "-x", "-x"+strings.Repeat("x", patchLimitBytes), 1)
	containers := func(n int, mount string) string {
		return reviewOf(`{"spec": {"containers": [`+repeat(`{"name": "a", `+mount+`}`, n)+`]}}`, "")
	}
	if r := response(t, containers(inject.ContainerLimit, mount)); len(r.Patch) == 0 {
		t.Errorf("as many containers as there may be: %q", r.Warnings)
	}
	f(containers(inject.ContainerLimit+1, mount), "has 129 containers, of at most 128")
	f(containers(1, long), "would need a patch of 13")
	f(reviewOf(`{"spec": {"containers": [{}]}, "unknown": "`+strings.Repeat("a", reviewLimitBytes)+`"}`, ""),
		"its review is longer than 3145728 bytes")
	f(reviewOf(`{"spec": {"containers": [`+repeat("{}", 100_000)+`]}}`, ""), "its review has")
	f(reviewOf(strings.Repeat("[", depthLimit)+strings.Repeat("]", depthLimit), ""), "its review nests 102 levels deep")
	f(reviewOf(`{"spec": {"os": {"name": "windows"}, "containers": [{"name": "a\n\u0001b", `+
		`"env": [{"name": "KUBERNETES_SERVICE_HOST"}], `+mount+`}]}}`, ""), "is for Windows")
	f(reviewOf(`{"spec": {"containers": [{"name": "a\n\u0001b", "env": [{"name": "KUBERNETES_SERVICE_HOST"}], `+mount+
		`}]}}`, ""), "container a  b sets")
}

// Where it cannot be known which review it is, there is nothing to answer but what is wrong.
func TestTooMuchOfNoReview(t *testing.T) {
	for body, want := range map[string]int{
		`{"a": "` + strings.Repeat("x", reviewLimitBytes) +
			`"}`: http.StatusRequestEntityTooLarge,
		`{"request": {"object": "` + strings.Repeat("x", reviewLimitBytes) +
			`", "uid": "u"}}`: http.StatusRequestEntityTooLarge,
		`{"request": {"uid": "` + strings.Repeat("u", 200) + `", "x": [` + repeat("{}", 1<<20) +
			`]}}`: http.StatusRequestEntityTooLarge,
		`{"request": {"uid": {"a": 1}, "x": [` + repeat("{}", 1<<20) +
			`]}}`: http.StatusRequestEntityTooLarge,
		`{"a": [` + repeat("{}", 1<<20) +
			`]}`: http.StatusRequestEntityTooLarge,
	} {
		if code, text := post(body); code != want || !strings.HasPrefix(text, "its review") {
			t.Errorf("%.60s: %d %.100s", body, code, text)
		}
	}
}

// endless is a body that goes on after what there is of it, until it is cut.
func endless(text string) (io.Reader, *io.PipeWriter) {
	rest, cut := io.Pipe()
	return io.MultiReader(strings.NewReader(text), rest), cut
}

// Large reviews that do not end keep other large ones waiting for no longer than half of the API
// server's timeout, and small ones not at all. When they have ended, large ones are answered again.
func TestRoomIsWaitedForInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		send := func(body io.Reader, size int) <-chan string {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/inject?timeout=4s", body)
			r.ContentLength = int64(size)
			answers := make(chan string, 1)
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				answers <- w.Body.String()
			}()
			return answers
		}
		small := reviewOf(pod, "")
		large := small + strings.Repeat(" ", headBytes)
		var cuts []*io.PipeWriter
		var unended []<-chan string
		for range textsLimitBytes / reviewLimitBytes {
			body, cut := endless(large)
			cuts, unended = append(cuts, cut), append(unended, send(body, reviewLimitBytes))
		}
		synctest.Wait()
		began := time.Now()
		if text := <-send(strings.NewReader(small), len(small)); !strings.Contains(text, `"patch"`) {
			t.Errorf("a small one: %s", text)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("a small one waits for %v", waited)
		}
		if text := <-send(strings.NewReader(large), len(large)); !strings.Contains(text,
			"spillway: not injected: there are too many large reviews at a time") {
			t.Errorf("a large one: %s", text)
		}
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("a large one is answered after %v", waited)
		}
		for i, cut := range cuts { // as the server does, whose connection may not be read any longer
			cut.CloseWithError(os.ErrDeadlineExceeded)
			if text := <-unended[i]; !strings.Contains(text, "spillway: not injected: its review did not arrive in time") {
				t.Errorf("one that does not end: %s", text)
			}
		}
		if text := <-send(strings.NewReader(large), len(large)); !strings.Contains(text, `"patch"`) {
			t.Errorf("a large one when they have ended: %s", text)
		}
	})
}

// A review that cannot be read to its end is refused for the reason of that, be it in its head or
// behind it.
func TestUnreadableReviewSaysWhy(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"its time is over", &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "its review did not arrive in time"},
		{"its connection breaks", syscall.ECONNRESET, "its review could not be read: connection reset by peer"},
	} {
		for _, size := range []int{0, headBytes} {
			body, cut := endless(reviewOf(pod, "") + strings.Repeat(" ", size))
			cut.CloseWithError(tt.err)
			r := httptest.NewRequest(http.MethodPost, "/inject", body)
			r.ContentLength = -1
			w := httptest.NewRecorder()
			newHandler().ServeHTTP(w, r)
			if !strings.Contains(w.Body.String(), "spillway: not injected: "+tt.want) {
				t.Errorf("%s after %d bytes more: %d %s", tt.name, size, w.Code, w.Body)
			}
		}
	}
}

// What is sent without its length is as bounded.
func TestLengthUnknown(t *testing.T) {
	for size, want := range map[int]string{10: `"patch"`, headBytes: `"patch"`, reviewLimitBytes - 1000: `"patch"`,
		reviewLimitBytes: "is longer than", 2 * reviewLimitBytes: "is longer than"} {
		r := httptest.NewRequest(http.MethodPost, "/inject", strings.NewReader(reviewOf(pod, "")+strings.Repeat(" ", size)))
		r.ContentLength = -1
		w := httptest.NewRecorder()
		newHandler().ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d: %d %s", size, w.Code, w.Body)
		}
	}
}

// Only a client with a certificate that is vouched for is answered, and no byte of another's review
// is read.
func TestClientsAreVerified(t *testing.T) {
	refused := errors.New("unknown")
	for _, c := range []struct {
		state *tls.ConnectionState
		err   error
		want  string
	}{
		{nil, nil, "a client certificate is needed"},
		{&tls.ConnectionState{}, nil, "a client certificate is needed"},
		{&tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}, refused,
			"the client certificate is not accepted: unknown"},
		{&tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}, nil, ""},
	} {
		o := inject.Defaults()
		o.Image = "spillway:1"
		h := Handler(o, func(context.Context, netip.Addr, []*x509.Certificate) error { return c.err }, nil, zap.NewNop())
		body := strings.NewReader(reviewOf(pod, ""))
		r := httptest.NewRequest(http.MethodPost, "/inject", body)
		r.TLS = c.state
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if c.want == "" && w.Code != http.StatusOK || c.want != "" &&
			(w.Code != http.StatusForbidden || !strings.HasPrefix(w.Body.String(), c.want) ||
				body.Len() != int(body.Size())) {
			t.Errorf("%v %v: %d %s, %d bytes unread", c.state, c.err, w.Code, w.Body, body.Len())
		}
	}
}

// FuzzReview: whatever arrives, nothing panics; and what is a review is answered with what its API
// server takes.
func FuzzReview(f *testing.F) {
	f.Add(reviewOf(pod, ""))
	for _, object := range hostile(100) {
		f.Add(reviewOf(object, ""))
	}
	f.Fuzz(func(t *testing.T, body string) {
		code, text := post(body)
		if code != http.StatusOK {
			return
		}
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Response == nil || !answer.Response.Allowed {
			t.Fatalf("%q: %v, %s", body, err, text)
		}
		for _, warning := range answer.Response.Warnings {
			if _, err := utilnet.NewWarningHeader(299, "", warning); err != nil {
				t.Fatalf("%q: no API server shows %q: %v", body, warning, err)
			}
		}
	})
}

// A connection has the time of SECURITY.md for each of its phases.
func TestReviewersHaveLimitedTime(t *testing.T) {
	const get = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, c := range map[string]struct {
		sent    string
		answers int  // that are taken before the wait
		takes   bool // what comes, during the wait
		ends    time.Duration
	}{
		"nothing is sent":       {ends: 5 * time.Second},
		"a head without an end": {sent: "GET /livez HTTP/1.1\r\n", ends: 5 * time.Second},
		"a body without an end": {sent: "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
			takes: true, ends: 10 * time.Second},
		"an answer is not taken":    {sent: get, ends: 15 * time.Second},
		"idle between two requests": {sent: get, answers: 1, ends: 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := testutil.NewPipeListener()
				server := NewServer(http.NotFoundHandler(), &tls.Config{}, zap.NewNop())
				done := make(chan error, 1)
				go func() { done <- server.Serve(listener) }()
				conn := listener.Dial()
				began := time.Now()
				if _, err := io.WriteString(conn, c.sent); err != nil {
					t.Fatal(err)
				}
				read := bufio.NewReader(conn)
				for range c.answers {
					response, err := http.ReadResponse(read, nil)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, response.Body)
				}
				if c.takes {
					go func() { _, _ = io.Copy(io.Discard, read) }()
				}
				time.Sleep(c.ends - time.Since(began) - time.Millisecond)
				if listener.HasClosed() {
					t.Errorf("it was ended within %v", c.ends)
				}
				time.Sleep(2 * time.Millisecond)
				if !listener.HasClosed() {
					t.Errorf("it was not ended after %v", c.ends)
				}
				_ = conn.Close()
				_ = server.Close()
				<-done
			})
		})
	}
}
