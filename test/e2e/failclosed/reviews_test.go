package failclosed

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
	"spillway/test/framework/wire"
)

// canary is in every object that there is to read.
const canary = "canary-"

const (
	list  = "/api/v1/namespaces/red/configmaps?resourceVersion=0"
	watch = list + "&watch=1&timeoutSeconds=60"
)

var reads = authcluster.In("red", authcluster.Rule("get,list,watch", "", "configmaps"))

// world is a cluster with an object to read, in front of which each test has a proxy of its own.
type world struct {
	*authcluster.Cluster
	binary string
}

// TestFailClosed is every doubt.
func TestFailClosed(t *testing.T) {
	w := &world{authcluster.Start(t, authcluster.Options{Users: map[controlplane.User][]string{"impersonator": nil}}),
		process.BuildProxy(t)}
	w.Namespace(t, "red")
	w.Namespace(t, "busy")
	w.object(t, "red", "a", nil)
	w.object(t, "busy", "first", nil)
	for name, test := range map[string]func(*testing.T){
		"reviews": w.failing, "watches": w.holding, "authority": w.authorityChanges, "serving certificate": w.servingChanges,
		"expiry": w.certificateEnds, "audience": w.otherAudience, "lent credentials": w.lentCredentials,
	} {
		t.Run(name, test)
	}
}

// object makes an object, or changes it.
func (w *world) object(t *testing.T, namespace, name string, data map[string]string) {
	t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name},
		Data: map[string]string{"song": canary + rand.Text()}}
	maps.Copy(o.Data, data)
	maker := w.Admin.CoreV1().ConfigMaps(namespace)
	_, err := maker.Update(t.Context(), o, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maker.Create(t.Context(), o, metav1.CreateOptions{})
	}
	if err != nil {
		t.Error(err)
	}
}

// get sends one request, on a connection of its own.
func get(ctx context.Context, to wire.Address, p authcluster.User, target string) (*exchange.Answer, []byte, error) {
	return getUntil(ctx, to, p, target, nil)
}

// getUntil is get, but reads no further when enough of the body is there.
func getUntil(ctx context.Context, to wire.Address, p authcluster.User, target string, enough func(body []byte) bool) (
	*exchange.Answer, []byte, error) {
	conn, err := wire.Dial(ctx, to)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	return conn.AskUntil(http.MethodGet, request(to, p, target), enough)
}

// shown reports that an object is in what was received.
func shown(received []byte) bool { return bytes.Contains(received, []byte(canary)) }

func request(to wire.Address, p authcluster.User, target string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\n", target, to.Host)
	for name, values := range p.Header {
		for _, value := range values {
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

func fromMemory(a *exchange.Answer) bool { return a.Header.Get(exchange.FlowControl) == "" }

// failing lets every sort of review fail in every way. A client with a token is answered by
// upstream, as if there was no proxy; one with a certificate is refused; none is answered from
// memory, until reviews succeed again.
func (w *world) failing(t *testing.T) {
	t.Parallel()
	all := append(faults(tokenReviews), faults(accessReviews)...)
	type trio struct{ may, mayNot, certified authcluster.User }
	var trios []trio
	for i := range all { // for i := range all { // users that are not in the proxy's caches
		may, mayNot := w.ServiceAccount(t, "red", fmt.Sprintf("may-%d", i), 0),
			w.ServiceAccount(t, "red", fmt.Sprintf("may-not-%d", i), 0)
		certified := w.Certified(t, fmt.Sprintf("certified-%d", i))
		w.Grant(t, may, reads)
		w.Grant(t, certified, reads)
		trios = append(trios, trio{may, mayNot, certified})
	}
	w.Settle(t)
	r := newRelay(t, w.Cluster)
	proxy := process.StartProxy(t, w.binary, r.flags(t, w.Cluster, "--resources=configmaps")...)
	for i, f := range all {
		t.Run(strings.TrimPrefix(f.group, "/apis/")+f.name, func(t *testing.T) {
			who := trios[i]
			r.fault.Store(&f)
			var asking sync.WaitGroup
			started := time.Now()
			for _, target := range []string{list, watch} {
				asking.Go(func() { expect(t, proxy, who.may, target, upstream, http.StatusOK) })
				asking.Go(func() { expect(t, proxy, who.mayNot, target, upstream, http.StatusForbidden) })
				asking.Go(func() {
					expect(t, proxy, authcluster.Bearer("nobody", rand.Text()), target, anybody, http.StatusUnauthorized)
				})
				if f.group == accessReviews {
					asking.Go(func() { expect(t, proxy, who.certified, target, itself, http.StatusServiceUnavailable) })
				}
			}
			asking.Wait()
			if took := time.Since(started); took > time.Minute {
				t.Errorf("it took %v", took)
			}
			r.fault.Store(nil)
			awaitMemory(t, proxy, who.may)
			awaitMemory(t, proxy, who.certified)
		})
	}
}

// answerSource is the server that answers.
type answerSource string

const (
	upstream answerSource = "upstream"
	itself   answerSource = "the proxy"
	anybody  answerSource = "" // of a 401 one cannot see it
)

// expect sends a request, and checks which server answers what. An answer must show an object, and
// a watch has time enough for it; a refusal, which is read to its end, must be without any byte of
// one.
func expect(t *testing.T, proxy *process.Proxy, p authcluster.User, target string, who answerSource, status int) {
	t.Helper()
	var enough func([]byte) bool
	if status == http.StatusOK {
		enough = shown
	}
	a, received, err := getUntil(t.Context(), authcluster.Through(proxy, p), p, target, enough)
	if err != nil {
		t.Errorf("%s, %s: %v", p.Name, target, err)
		return
	}
	answered := upstream
	if fromMemory(a) {
		answered = itself
	}
	if a.Status != status || who != anybody && who != answered {
		t.Errorf("%s, %s: %d by %s, want %d by %s: %s", p.Name, target, a.Status, answered, status, who,
			exchange.Clip(a.Body))
	}
	if seen := shown(received); seen != (status == http.StatusOK) {
		t.Errorf("%s, %s: shown an object: %t: %q", p.Name, target, seen, received)
	}
}

// awaitMemory waits until a user's request is answered from memory.
func awaitMemory(t *testing.T, proxy *process.Proxy, p authcluster.User) {
	t.Helper()
	process.Awaiting(t, "answers from memory to "+p.Name, func(ctx context.Context) error {
		a, _, err := get(ctx, authcluster.Through(proxy, p), p, list)
		if err == nil && (a.Status != http.StatusOK || !fromMemory(a)) {
			err = fmt.Errorf("%d, from memory: %t", a.Status, fromMemory(a))
		}
		return err
	})
}
