package stuck

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const (
	configMaps = "/api/v1/configmaps"
	// self is the user of the proxy. It may read everything and review others; alice and bob may read.
	self = controlplane.User("spillway")
	// podAccount is the service account of a sidecar's pod, which may read as alice may.
	podAccount = "app"
	// identityPodToken is that of a sidecar's listener, which serves tokens of podAccount.
	identityPodToken = "pod-token"
	// cachedReview is how long a review answers for a client, at least: 10 s, and some jitter.
	cachedReview = 9 * time.Second
	// late is how late an event may be.
	late = 2 * time.Second
	// endsWithin is how long a process may take to end after SIGTERM, with a drain period of a second:
	// what hangs is not waited for.
	endsWithin = 20 * time.Second
)

// world is a control plane.
type world struct {
	t     *testing.T
	cp    *controlplane.ControlPlane
	admin kubernetes.Interface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{
		Log: t.Output(), Users: map[controlplane.User][]string{self: {"system:masters"}},
	})
	must(t, err)
	t.Cleanup(cp.Stop)
	admin, err := kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	must(t, err)
	w := &world{t: t, cp: cp, admin: admin}
	_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: string(controlplane.Alice)},
			{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: string(controlplane.Bob)},
			{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: podAccount},
		},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = admin.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: podAccount}}, metav1.CreateOptions{})
	must(t, err)
	must(t, controlplane.WriteKubeconfig(cp.Kubeconfig(self), cp.Config(self)))
	return w
}

// podToken is a new token of the service account of a sidecar's pod.
func (w *world) podToken() string {
	w.t.Helper()
	token, err := w.admin.CoreV1().ServiceAccounts("default").CreateToken(w.t.Context(), podAccount,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(w.t, err)
	return token.Status.Token
}

// podKubeconfig leads to the API server as that account.
func (w *world) podKubeconfig() string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "kubeconfig")
	must(w.t, w.writeKubeconfig(path, &clientcmdapi.AuthInfo{Token: w.podToken()}))
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write creates a config map at the API server, as soon as that takes it.
func (w *world) write(name string) {
	w.t.Helper()
	process.Awaiting(w.t, "a write", func(ctx context.Context) error {
		_, err := w.admin.CoreV1().ConfigMaps("default").Create(
			ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	})
}

// stderr is a pipe that is read, or not.
type stderr struct {
	t     *testing.T
	r, w  *os.File
	gate  sync.Mutex // held while it is not read
	mu    sync.Mutex
	text  bytes.Buffer
	atEnd chan struct{}
}

func newStderr(t *testing.T) *stderr {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	s := &stderr{t: t, r: r, w: w, atEnd: make(chan struct{})}
	go func() {
		defer close(s.atEnd)
		buffer := make([]byte, 4096)
		for {
			n, err := r.Read(buffer)
			s.gate.Lock()
			s.mu.Lock()
			s.text.Write(buffer[:n])
			s.mu.Unlock()
			s.gate.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		w.Close()
		r.Close()
		if t.Failed() {
			text := s.String()
			t.Logf("the end of its log:\n%s", text[max(0, len(text)-8<<10):])
		}
	})
	return s
}

func (s *stderr) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// block fills the pipe and does not read it until release is called.
func (s *stderr) block() (release func()) {
	s.t.Helper()
	s.gate.Lock()
	filler, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", s.w.Fd()), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	must(s.t, err)
	defer filler.Close()
	for full := 0; full < 10; { // one more read may be under way
		conn, err := filler.SyscallConn()
		must(s.t, err)
		var failed error
		must(s.t, conn.Write(func(fd uintptr) bool {
			_, failed = syscall.Write(int(fd), []byte("\n"))
			return true
		}))
		if full++; failed == nil {
			full = 0
		} else {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return s.gate.Unlock
}

// entries are the log lines with a message.
func (s *stderr) entries(message string) []map[string]any {
	var all []map[string]any
	for line := range strings.Lines(s.String()) {
		var e map[string]any
		if json.Unmarshal([]byte(line), &e) == nil && e["msg"] == message {
			all = append(all, e)
		}
	}
	return all
}

// spillway is a running process, and a client of it.
type spillway struct {
	t            *testing.T
	url, metrics string
	token        string
	client       *http.Client
	log          *stderr
	child        *process.Child
}

// launch starts a program whose log is read for the time being.
func launch(t *testing.T, command *exec.Cmd) *spillway {
	t.Helper()
	s := &spillway{t: t, log: newStderr(t), client: &http.Client{}}
	var err error
	s.child, err = process.Start(command, nil, s.log.w)
	must(t, err)
	t.Cleanup(func() { s.child.Stop(endsWithin) })
	return s
}

// start starts a proxy and waits until it is ready.
func start(t *testing.T, binary string, args ...string) *spillway {
	t.Helper()
	s := launch(t, exec.Command(binary, append([]string{"--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
		"--drain-period=1s", "--resources=configmaps"}, args...)...))
	s.url = "http://" + s.address("serving plain HTTP")
	s.metrics = "http://" + s.address("serving health and metrics")
	process.Awaiting(t, "the proxy to be ready", func(ctx context.Context) error {
		return process.ExpectOK(ctx, s.metrics+"/readyz")
	})
	return s
}

// address is what a line of the log tells.
func (s *spillway) address(message string) (address string) {
	s.t.Helper()
	process.Awaiting(s.t, message, func(context.Context) error {
		if s.child.Ended() {
			s.t.Fatalf("it ended: %v", s.child.Err)
		}
		if lines := s.log.entries(message); len(lines) > 0 {
			address, _ = lines[0]["address"].(string)
			return nil
		}
		return errors.New("not yet")
	})
	return address
}

// answer is what is answered to a GET.
type answer struct {
	code int
	age  int // seconds; -1: it has none
	body string
	took time.Duration
	err  error
}

func (s *spillway) get(url string) answer {
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(s.t, err)
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, err := s.client.Do(r)
	if err != nil {
		return answer{err: err, took: time.Since(began)}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	a := answer{code: response.StatusCode, age: -1, body: string(body), err: err, took: time.Since(began)}
	if age, err := strconv.Atoi(response.Header.Get("Age")); err == nil {
		a.age = age
	}
	return a
}

// events are the names of the objects that a watch is sent, until the test ends.
func (s *spillway) events() <-chan string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+configMaps+"?watch=1&resourceVersion=0", nil)
	must(s.t, err)
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, err := s.client.Do(r)
	must(s.t, err)
	names := make(chan string, 1000)
	go func() {
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e struct{ Object metav1.PartialObjectMetadata }
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				names <- e.Object.Name
			}
		}
	}()
	return names
}

// arrives reports whether the event of an object arrives within a time.
func arrives(events <-chan string, name string, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case got := <-events:
			if got == name {
				return true
			}
		case <-timer.C:
			return false
		}
	}
}

// metric is the sum of a metric.
func (s *spillway) metric(name string) int {
	s.t.Helper()
	return process.Metric(s.t, s.metrics, name)
}

// terminates sends SIGTERM and waits for the end.
func (s *spillway) terminates() error {
	s.t.Helper()
	began := time.Now()
	must(s.t, s.child.Signal(syscall.SIGTERM))
	select {
	case <-s.child.Done:
		s.t.Logf("SIGTERM ended it in %v", time.Since(began).Round(time.Millisecond))
	case <-time.After(endsWithin):
		s.t.Fatalf("SIGTERM has not ended it within %v", endsWithin)
	}
	return s.child.Err
}

// as is what a client of a user brings itself.
func (w *world) as(u controlplane.User) string { return w.cp.Config(u).BearerToken }
