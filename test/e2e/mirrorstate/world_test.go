package mirrorstate

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// promised is within what time a mirror is synced once it can be.
const promised = 30 * time.Second

// self is the user of the proxy.
const self = controlplane.User("spillway")

// world is a control plane, and a proxy in front of it.
type world struct {
	t     *testing.T
	cp    *controlplane.ControlPlane
	admin kubernetes.Interface
	built string // the proxy's program
	proxy *process.Proxy
	begun time.Time // when it was started
}

func newWorld(t *testing.T) *world {
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
	return &world{t: t, cp: cp, admin: admin, built: process.BuildProxy(t)}
}

// allow lets the proxy read resources of all groups.
func (w *world) allow(name string, resources ...string) {
	w.t.Helper()
	w.allowIn(name, "*", resources...)
}

func (w *world) allowIn(name, group string, resources ...string) {
	w.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{group}, Resources: resources},
	}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: string(self)}},
	}
	if _, err := w.admin.RbacV1().ClusterRoles().Create(w.t.Context(), role, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.admin.RbacV1().ClusterRoleBindings().Create(w.t.Context(), binding,
		metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// launch starts a proxy whose upstream is a server, nil for the API server itself.
func (w *world) launch(upstream *httptest.Server, args ...string) {
	w.t.Helper()
	config := w.cp.Config(self)
	if upstream != nil {
		config.Host = upstream.URL
		config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: upstream.Certificate().Raw})
	}
	file := filepath.Join(w.t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(file, config); err != nil {
		w.t.Fatal(err)
	}
	usual := []string{"--kubeconfig=" + file, "--listen-identity=self", "--log-level=info"}
	w.begun = time.Now()
	w.proxy = process.LaunchProxy(w.t, w.built, append(usual, args...)...)
}

// before is a handler in front of the API server, at an address of its own, over HTTP/2 or
// HTTP/1.1.
func (w *world) before(http2 bool, handler func(target *url.URL,
	transport http.RoundTripper) http.Handler) *httptest.Server {
	w.t.Helper()
	target, err := url.Parse(w.cp.URL())
	if err != nil {
		w.t.Fatal(err)
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: w.cp.CA()}})
	if err != nil {
		w.t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler(target, transport))
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // what is cut on purpose
	server.StartTLS()
	w.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

func (w *world) get(path string) (code int, body string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// verbose is /readyz?verbose.
func (w *world) verbose() string {
	w.t.Helper()
	_, text := w.get(w.proxy.Metrics + "/readyz?verbose")
	return text
}

// state is 1 if the mirror of a resource is in a state.
func (w *world) state(ctx context.Context, resource, state string) (int, error) {
	total := 0
	for _, version := range []string{"", "v1", "v2"} {
		n, err := process.ReadMetric(ctx, w.proxy.Metrics,
			fmt.Sprintf(`spillway_mirror_state{resource=%q,state=%q,version=%q}`, resource, state, version))
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// awaitState waits until the mirror of a resource is in a state, and returns how long that took.
func (w *world) awaitState(resource, state string) time.Duration {
	w.t.Helper()
	begin := time.Now()
	process.Awaiting(w.t, resource+" to be "+state, func(ctx context.Context) error {
		if n, err := w.state(ctx, resource, state); err != nil || n != 1 {
			return fmt.Errorf("%d, %v", n, err)
		}
		return nil
	})
	return time.Since(begin)
}

// keeps holds what a mirror did against the promise.
func (w *world) keeps(what string, took time.Duration) {
	w.t.Helper()
	w.t.Logf("%s: synced after %v", what, took.Round(100*time.Millisecond))
	if took > promised {
		w.t.Errorf("%s: synced after %v, promised is %v", what, took, promised)
	}
}

func (w *world) kubectl(input string, args ...string) string {
	w.t.Helper()
	out, err := w.cp.KubectlInput(w.t.Context(), input, args...)
	if err != nil {
		w.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// nowhere is an https URL where nothing listens.
func nowhere(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "https://" + l.Addr().String()
}

// refused tries until a URL of the proxy or the API server is answered with an error of the API.
func refused(w *world, target string) func(context.Context) error {
	client := http.DefaultClient
	token := ""
	if strings.HasPrefix(target, "https:") {
		config := w.cp.Config(controlplane.Admin)
		token = config.BearerToken
		transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: config.TLSClientConfig})
		if err != nil {
			w.t.Fatal(err)
		}
		client = &http.Client{Transport: transport}
	}
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return err
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode < http.StatusBadRequest || response.Header.Get("Age") != "" {
			return fmt.Errorf("answered %s", response.Status)
		}
		return nil
	}
}
