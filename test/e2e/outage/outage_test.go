package outage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

var frozen = flag.Duration("frozen", 10*time.Second, "how long the API server is frozen at least")

const (
	configMaps = "/api/v1/configmaps"
	clients    = 5 // of each kind
	// self is the proxy's user: RBAC lets it read, so that it meets an API server that has not read
	// its rules yet.
	self = controlplane.User("spillway")
)

// world is a control plane, a proxy in front of it that has to be allowed what it does, and
// clients.
type world struct {
	t     *testing.T
	cp    *controlplane.ControlPlane
	admin kubernetes.Interface
	proxy *process.Proxy
	raw   []*seen
	all   []*seen // the raw ones and the informers
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w, args := newUpstream(t)
	w.proxy = process.StartProxy(t, process.BuildProxy(t), args...)
	for range clients {
		w.raw = append(w.raw, watchRaw(t, w.proxy, nameIn))
		w.all = append(w.all, inform(t, w.proxy))
	}
	w.all = append(w.all, w.raw...)
	awaitAll(t, w.all, "before", time.Now())
	return w
}

// newUpstream is a world without a proxy and clients, and how a proxy is to be started in it.
func newUpstream(t *testing.T) (w *world, args []string) {
	t.Helper()
	cp, err := controlplane.Start(t.Context(),
		controlplane.Options{Log: t.Output(), Users: map[controlplane.User][]string{self: nil}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	admin, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	if err != nil {
		t.Fatal(err)
	}
	w = &world{t: t, cp: cp, admin: admin}
	w.allowSelf()
	w.write("before")
	file := cp.Kubeconfig(self)
	if err := controlplane.WriteKubeconfig(file, cp.Config(self)); err != nil {
		t.Fatal(err)
	}
	return w, []string{"--kubeconfig=" + file, "--resources=configmaps,services,pods,deployments.apps",
		"--listen-identity=self"}
}

func (w *world) allowSelf() {
	w.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "mirrors"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "mirrors"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: string(self)}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "mirrors"},
	}
	if _, err := w.admin.RbacV1().ClusterRoles().Create(w.t.Context(), role, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.admin.RbacV1().ClusterRoleBindings().Create(w.t.Context(), binding,
		metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// write creates a config map, straight at the API server.
func (w *world) write(name string) {
	w.t.Helper()
	process.Awaiting(w.t, "a write", func(ctx context.Context) error {
		_, err := w.admin.CoreV1().ConfigMaps("default").Create(
			ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // of the try before, whose answer did not come
		}
		return err
	})
}

// answer is what the proxy says to a request; code 0: nothing, in the time that it has.
type answer struct {
	code int
	age  string
	body string
}

func (w *world) ask(method, target, body string) answer {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, w.proxy.Plain+target, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return answer{}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}
	}
	return answer{response.StatusCode, response.Header.Get("Age"), string(text)}
}

const ofAnyAge = configMaps + "?resourceVersion=0"

// checkAway holds what must hold while the API server is unreachable, once that is known.
func (w *world) checkAway() {
	w.t.Helper()
	if a := w.ask(http.MethodGet, ofAnyAge, ""); a.code != http.StatusOK || a.age == "" ||
		!strings.Contains(a.body, `"before"`) {
		w.t.Errorf("a state of any age: %d, Age %q", a.code, a.age)
	}
	if a := w.ask(http.MethodGet, "/api/v1/namespaces/default/configmaps/before?resourceVersion=0",
		""); a.code != http.StatusOK || a.age == "" {
		w.t.Errorf("an object of any age: %d, Age %q", a.code, a.age)
	}
	for _, target := range []string{configMaps, "/api/v1/namespaces/default/configmaps/before"} {
		if a := w.ask(http.MethodGet, target, ""); a.code != 0 && a.code < http.StatusInternalServerError {
			w.t.Errorf("%s claims to be current: %d", target, a.code)
		}
	}
	lost := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"lost"}}`
	if a := w.ask(http.MethodPost, "/api/v1/namespaces/default/configmaps", lost); a.code != 0 &&
		a.code < http.StatusInternalServerError {
		w.t.Errorf("a write: %d", a.code)
	}
	for _, s := range w.raw {
		if s.over() {
			w.t.Error("a watch has ended")
		}
	}
}

// metric is a sum over all labels.
func (w *world) metric(name string) int {
	w.t.Helper()
	return process.Metric(w.t, w.proxy.Metrics, name)
}

// awaitAge waits until answers have an age, and returns it.
func (w *world) awaitAge() int {
	w.t.Helper()
	age := ""
	process.Awaiting(w.t, "answers to tell their age", func(context.Context) error {
		if age = w.ask(http.MethodGet, ofAnyAge, "").age; age == "" {
			return errors.New("none")
		}
		return nil
	})
	n, err := strconv.Atoi(age)
	if err != nil {
		w.t.Errorf("Age: %q", age)
	}
	return n
}

// awaitCurrent writes, waits until all have received it and answers have no age any more, and
// returns how long the first took from a moment on.
func (w *world) awaitCurrent(name string, from time.Time) time.Duration {
	w.t.Helper()
	w.write(name)
	took := awaitAll(w.t, w.all, name, from)
	process.Awaiting(w.t, "answers without age", func(context.Context) error {
		if a := w.ask(http.MethodGet, ofAnyAge, ""); a.code != http.StatusOK || a.age != "" ||
			!strings.Contains(a.body, strconv.Quote(name)) {
			return fmt.Errorf("%d, Age %q", a.code, a.age)
		}
		return nil
	})
	process.Awaiting(w.t, "the most recent state", func(context.Context) error {
		if a := w.ask(http.MethodGet, configMaps, ""); a.code != http.StatusOK {
			return fmt.Errorf("%d", a.code)
		}
		return nil
	})
	return took
}

// checkClients holds that no client lost its stream, and no informer listed.
func (w *world) checkClients() {
	w.t.Helper()
	for _, s := range w.raw {
		if s.over() {
			w.t.Error("a watch has ended")
		}
	}
	for _, s := range w.all {
		if n := s.started(); n > 1 {
			w.t.Errorf("an informer has asked for the complete state %d times", n)
		}
	}
}

// An API server that is frozen and thawed: no client lists, not even the proxy.
func TestFrozenAPIServerCausesNoList(t *testing.T) {
	w := newWorld(t)
	lists := w.metric("spillway_upstream_lists_total")
	since := time.Now()
	if err := w.cp.FreezeAPIServer(); err != nil {
		t.Fatal(err)
	}
	age := w.awaitAge()
	t.Logf("frozen: answers tell their age after %.1f s: %d s", time.Since(since).Seconds(), age)
	w.checkAway()
	for time.Since(since) < *frozen {
		time.Sleep(time.Second)
		if time.Since(since) > 30*time.Second {
			w.checkAway()
			time.Sleep(10 * time.Second)
		}
	}
	w.checkAway()
	if n := w.metric("spillway_stale_responses_total"); n == 0 {
		t.Error("answers of old states are not counted")
	}
	if n := w.metric("spillway_mirror_staleness_seconds"); n == 0 {
		t.Error("no metric tells how old states are")
	}
	total := time.Since(since)
	if err := w.cp.ThawAPIServer(); err != nil {
		t.Fatal(err)
	}
	took := w.awaitCurrent("after", time.Now())
	t.Logf("thawed after %.0f s: a write reaches all %d clients %.2f s after", total.Seconds(), len(w.all), took.Seconds())
	w.checkClients()
	if n := w.metric("spillway_upstream_lists_total"); n != lists {
		t.Errorf("%d complete states were requested", n-lists)
	}
}

// An API server that is killed and starts again without its history: the proxy has to list, and no
// client.
func TestKilledAPIServerCausesNoClientList(t *testing.T) {
	w := newWorld(t)
	for _, pause := range []time.Duration{0, 20 * time.Second} {
		lists, watches := w.metric("spillway_upstream_lists_total"), w.metric("spillway_upstream_watches_total")
		w.cp.APIServer().Kill()
		w.awaitAge()
		w.checkAway()
		time.Sleep(pause)
		killed := time.Now()
		if err := w.cp.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		ready := time.Now()
		took := w.awaitCurrent(fmt.Sprintf("after-%d", int(pause.Seconds())), ready)
		t.Logf("killed; ready again after %.1f s; a write reaches all %d clients %.2f s after that; %d lists and %d "+
			"watches of the proxy's mirrors",
			ready.Sub(killed).Seconds(), len(w.all), took.Seconds(), w.metric("spillway_upstream_lists_total")-lists,
			w.metric("spillway_upstream_watches_total")-watches)
		w.checkClients()
	}
}
