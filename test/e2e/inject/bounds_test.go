package inject

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"spillway/test/framework/process"
)

const (
	mostResident = 100 << 20
	// answerGuard is when a good review that is not answered fails the test, as its API server
	// would give it up. What is measured is in the log.
	answerGuard = 10 * time.Second
	atATime     = 50
)

// reviewOf is a review of a pod, in JSON, with something behind the pod.
func reviewOf(pod, more string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":` +
		`{"uid":"8d5a3e1c-0000-4000-8000-000000000000","kind":{"group":"","version":"v1",` +
		`"kind":"Pod"},"namespace":"a","operation":"CREATE","object":` + pod + more + `}}`
}

// goodPod has a token, and is of about some length.
func goodPod(size int) string {
	return `{"metadata":{"name":"good"},"spec":{"containers":[{"name":"app","args":["` + strings.Repeat("a", size) +
		`"],"volumeMounts":[{"name":"kube-api-access-x","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}]}}`
}

// hostileReviews are of up to 8 MiB, and become as much more as they can.
func hostileReviews() map[string]string {
	all := map[string]string{}
	for _, size := range []int{1 << 10, 30 << 10, 300 << 10, 2 << 20, 3<<20 - 1000, 8 << 20} {
		list := func(before, item, after string) string {
			return before + strings.TrimSuffix(strings.Repeat(item+",", size/(len(item)+1)), ",") + after
		}
		numbered := func(before, item, after string) string {
			var items strings.Builder
			for i := 0; items.Len() < size; i++ {
				fmt.Fprintf(&items, item+",", i)
			}
			return before + strings.TrimSuffix(items.String(), ",") + after
		}
		for shape, pod := range map[string]string{
			"containers":   list(`{"spec":{"containers":[`, `{}`, `]}}`),
			"mounts":       list(`{"spec":{"containers":[{"volumeMounts":[`, `{}`, `]}]}}`),
			"env":          list(`{"spec":{"containers":[{"env":[`, `{"name":"a"}`, `]}]}}`),
			"volumes":      list(`{"spec":{"volumes":[`, `{}`, `]}}`),
			"annotations":  numbered(`{"metadata":{"annotations":{`, `"%d":""`, `}}}`),
			"small values": list(`{"unknown":[`, `1`, `]}`),
			"wrong types":  list(`{"spec":{"containers":[`, `""`, `]}}`),
			"nesting":      `{"unknown":` + strings.Repeat("[", size/2) + strings.Repeat("]", size/2) + `}`,
			"long string": `{"metadata":{"name":"` + strings.Repeat("a", size) +
				`"},"spec":{"hostNetwork":true,"containers":[{}]}}`,
			"long mount":  strings.Replace(goodPod(0), "-x", "-"+strings.Repeat("x", size), 1),
			"long number": `{"spec":{"hostNetwork":` + strings.Repeat("1", size) + `}}`,
			"slow quantity": `{"metadata":{"annotations":{"spillway.example.com/cpu-request":"1e-1000000000"}},` +
				goodPod(size)[len(`{"metadata":{"name":"good"},`):],
			"cut off": `{"spec":"` + strings.Repeat("a", size),
		} {
			all[fmt.Sprintf("%s of %d", shape, size)] = reviewOf(pod, "")
		}
	}
	return all
}

// clientOf is one that trusts the webhook, with a connection for each request that is under way.
func (w *webhook) clientOf(t *testing.T, certificates ...tls.Certificate) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates},
		MaxIdleConnsPerHost: atATime}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// arrivalTimeout is how long a review may take to arrive: half of its timeout.
const arrivalTimeout = 5 * time.Second

// ask sends a review as an API server does, and returns how it is answered.
func ask(ctx context.Context, client *http.Client, url, review string) (*admissionv1.AdmissionResponse, int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?timeout=10s", strings.NewReader(review))
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return nil, answer.StatusCode, err
	}
	var decoded admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &decoded); err != nil || decoded.Response == nil {
		return nil, answer.StatusCode, fmt.Errorf("%w: %.200s", err, text)
	}
	return decoded.Response, answer.StatusCode, nil
}

// TestWebhookIsBounded: whatever reviews arrive, fifty at a time, as fast as they can be sent or as
// slowly, the webhook stays below its container's limit; answers all of which the uid can be read;
// and answers good ones meanwhile.
func TestWebhookIsBounded(t *testing.T) {
	c := &cluster{spillway: process.BuildProxy(t)}
	w := c.startWebhook(t)
	client := w.clientOf(t)
	answer, _, err := ask(t.Context(), client, w.url, reviewOf(goodPod(0), ""))
	must(t, err)
	if len(answer.Patch) == 0 {
		t.Fatalf("a good one: %+v", answer)
	}
	t.Logf("at rest: %d MiB", w.child.MostResident(t)>>20)

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 8 { // a head, or a review, that does not end
		running.Go(func() { w.dribble(ctx, t, "POST /inject HTTP/1.1\r\nHost: a\r\n"+heads(7<<10)) })
		running.Go(func() {
			w.dribble(ctx, t, "POST /inject HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n"+strings.Repeat(" ", 40<<10))
		})
		running.Go(func() { w.dribble(ctx, t, "") })
	}
	jobs := make(chan [2]string)
	for range atATime {
		running.Go(func() {
			client := w.clientOf(t)
			for job := range jobs {
				began := time.Now()
				answer, code, err := ask(t.Context(), client, w.url, job[1])
				switch {
				case err != nil && time.Since(began) >= arrivalTimeout: // a busy machine: its body did not arrive in time
				case err != nil:
					t.Errorf("%s: %v", job[0], err)
				case strings.HasPrefix(job[0], "cut off"):
					if code != http.StatusBadRequest && (answer == nil || !answer.Allowed) {
						t.Errorf("%s: %d", job[0], code)
					}
				case answer == nil || !answer.Allowed || answer.UID == "":
					t.Errorf("%s: %d, %+v", job[0], code, answer)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 {
			for name, review := range hostileReviews() {
				for range 2 { // the same at the same time
					jobs <- [2]string{name, review}
				}
			}
		}
		close(jobs)
	}()
	times := map[int][]time.Duration{}
	for good := true; good; {
		select {
		case <-done:
			good = false
		default:
		}
		for _, size := range []int{0, 20 << 10} {
			began := time.Now()
			guarded, cancel := context.WithTimeout(t.Context(), answerGuard)
			answer, code, err := ask(guarded, client, w.url, reviewOf(goodPod(size), ""))
			cancel()
			if err != nil || answer == nil || len(answer.Patch) == 0 {
				t.Fatalf("a good one of %d bytes: %v, %d, %+v", size, err, code, answer)
			}
			times[size] = append(times[size], time.Since(began))
		}
	}
	stop() // of what does not end; the others have no more to do
	running.Wait()
	for size, all := range times {
		slices.Sort(all)
		t.Logf("%d good reviews with %d bytes more among them: half within %v, 99 of 100 within %v, all within %v",
			len(all), size,
			all[len(all)/2].Round(time.Millisecond), all[len(all)*99/100].Round(time.Millisecond),
			all[len(all)-1].Round(time.Millisecond))
	}
	most := w.child.MostResident(t)
	t.Logf("at most: %d MiB", most>>20)
	if most > mostResident {
		t.Errorf("%d bytes were resident, of at most %d", most, mostResident)
	}
}

// heads are header lines that become as much as they can.
func heads(size int) string {
	var all strings.Builder
	for i := 0; all.Len() < size; i++ {
		fmt.Fprintf(&all, "%s:\r\n", strconv.FormatInt(int64(i), 36)+"a")
	}
	return all.String()
}

// dribble sends a text over one connection after another, and a byte more now and then.
func (w *webhook) dribble(ctx context.Context, t *testing.T, text string) {
	address := strings.TrimSuffix(strings.TrimPrefix(w.url, "https://"), "/inject")
	for ctx.Err() == nil {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		_, err = io.WriteString(conn, text)
		for err == nil {
			_, err = conn.Write([]byte(" "))
			_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, e := conn.Read(make([]byte, 1)); !errors.Is(e, os.ErrDeadlineExceeded) {
				break
			}
		}
		stop()
		_ = conn.Close()
	}
}

// TestIdleConnectionsLeaveRoomAtWebhook: hundreds of connections that say nothing, or begin a
// request and do not end it, leave room for the API server's.
func TestIdleConnectionsLeaveRoomAtWebhook(t *testing.T) {
	c := &cluster{spillway: process.BuildProxy(t)}
	w := c.startWebhook(t)
	address := strings.TrimSuffix(strings.TrimPrefix(w.url, "https://"), "/inject")
	for i := range 600 {
		raw, err := net.Dial("tcp", address)
		must(t, err)
		t.Cleanup(func() { _ = raw.Close() })
		if i%3 == 0 {
			continue
		}
		conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
		if i%3 == 1 {
			_, _ = io.WriteString(conn, "POST /inject HTTP/1.1\r\nHost: a\r\n"+heads(7<<10))
		} else {
			_, _ = io.WriteString(conn, "POST /inject HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n"+
				strings.Repeat(" ", 29<<10))
		}
	}
	answer, _, err := ask(t.Context(), w.clientOf(t), w.url, reviewOf(goodPod(0), ""))
	must(t, err)
	if len(answer.Patch) == 0 {
		t.Errorf("%+v", answer)
	}
	most := w.child.MostResident(t)
	t.Logf("at most: %d MiB", most>>20)
	if most > mostResident {
		t.Errorf("%d bytes were resident, of at most %d", most, mostResident)
	}
}
