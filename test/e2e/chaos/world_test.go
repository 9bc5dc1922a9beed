package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// world is all that can break: a control plane and the links to and inside of it, for many runs;
// and a proxy, for one.
type world struct {
	cp       *controlplane.ControlPlane
	recorder *recorder
	webhook  *webhook
	etcd     *Link // kube-apiserver → etcd
	upstream Links // proxy → kube-apiserver, which has two addresses
	clients  *Link // clients → proxy
	dir      string
	direct   *rest.Config

	clock   *process.Clock // the proxy's
	proxy   *proxy
	excuses *allowances  // of this run; written before anything breaks
	cast    *runClients  // likewise
	pen     sync.RWMutex // the writers'; the holder of the write lock keeps them from writing
}

// The users of the proxy. RBAC permits the first to read everything there is, the webhook permits
// the second, and nothing permits the third.
const readerUser, guestUser, strangerUser controlplane.User = "reader", "guest", "stranger"

// newWorld starts a control plane. It ends with the test.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), clock: process.NewClock(t)}
	var asked []string
	w.webhook, asked = newWebhook(t, w.dir)
	cp, err := controlplane.Start(t.Context(), controlplane.Options{
		Log:           t.Output(),
		Users:         map[controlplane.User][]string{readerUser: nil, guestUser: nil, strangerUser: nil},
		APIServerArgs: append(asked, "--storage-media-type=application/json"), // for the recorder to read
		EtcdRoute: func(address string) (_ string, err error) {
			if w.etcd, err = NewLink(address); err != nil {
				return "", err
			}
			return w.etcd.Address(), nil
		},
	})
	if w.etcd != nil {
		t.Cleanup(w.etcd.Close)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	w.cp = cp
	w.direct = cp.Config(controlplane.Admin)
	w.direct.QPS = -1
	w.upstream = newLinksOf(t, hostOf(cp.URL()))
	if err := w.furnish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.recorder, err = newRecorder(t.Context(), cp.EtcdAddress()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.recorder.close)
	return w
}

func newLinkOf(t *testing.T, target string) *Link {
	t.Helper()
	l, err := NewLink(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// newLinksOf are one at each address of process.Localhost, at the same port.
func newLinksOf(t *testing.T, target string) Links {
	t.Helper()
	port, err := controlplane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	var all Links
	for _, address := range process.Localhost {
		l, err := NewLinkAt(net.JoinHostPort(address, strconv.Itoa(port)), target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
		all = append(all, l)
	}
	return all
}

// furnish makes what objects need to be.
func (w *world) furnish(ctx context.Context) error {
	c, err := kubernetes.NewForConfig(w.direct)
	if err != nil {
		return err
	}
	for _, name := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: string(readerUser)}, Rules: []rbacv1.PolicyRule{{
		Verbs: []string{"get", "list", "watch"}, APIGroups: []string{configMaps.Group, widgets.Group},
		Resources: []string{configMaps.Resource, pods.Resource, widgets.Resource},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: string(readerUser)}},
	}
	_, err = c.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if err == nil {
		_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	}
	if err == nil {
		err = w.define(ctx)
	}
	return err
}

// define makes the definition of widgets, and returns when it is served. One that is there already
// will do.
func (w *world) define(ctx context.Context) error {
	c, err := apiextensions.NewForConfig(w.direct)
	if err != nil {
		return err
	}
	keep := true
	d := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: widgets.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgets.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: widgets.Resource, Singular: "widget", Kind: "Widget",
				ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: widgets.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
				}}}},
		},
	}
	widgetsClient, err := dynamic.NewForConfig(w.direct)
	if err != nil {
		return err
	}
	return eventually(ctx, func(ctx context.Context) error {
		_, err := c.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, d, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("widgets cannot be defined: %w", err)
		}
		_, err = widgetsClient.Resource(widgets).List(ctx, metav1.ListOptions{})
		return err
	})
}

// undefine removes the definition, and returns when it is gone.
func (w *world) undefine(ctx context.Context) error {
	c, err := apiextensions.NewForConfig(w.direct)
	if err != nil {
		return err
	}
	return eventually(ctx, func(ctx context.Context) error {
		definitions := c.ApiextensionsV1().CustomResourceDefinitions()
		err := definitions.Delete(ctx, widgets.GroupResource().String(), metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("the definition of widgets is still there")
		}
		return err
	})
}

// eventually tries until it succeeds or fails for good, for as long as ctx and patience last.
func eventually(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		attempt, done := context.WithTimeout(ctx, 10*time.Second)
		err := try(attempt)
		done()
		var hopeless *permanentError
		if err == nil || errors.As(err, &hopeless) {
			return err
		}
		if pause(ctx, 30*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("after %v: %w", patience, err)
		}
	}
}

// permanentError is an error that will not go away.
type permanentError struct{ error }

// patience bounds waits for what must happen. It decides nothing but how long a failing run takes.
const patience = 2 * time.Minute

// stage is what the proxy has to be built with so that its clock can jump, and the API server has
// two addresses.
func stage(t *testing.T) []process.Fault {
	return append(process.SettableClock(t), process.OwnHosts(t))
}

// endpoint is where a client reaches the proxy.
func (w *world) endpoint(user controlplane.User) endpoint {
	return endpoint{url: "https://" + w.clients.Address(), token: w.cp.Config(user).BearerToken}
}

// asks returns what a read that begins now may expect.
func (w *world) asks(writers []*writer) func() ask {
	return func() ask {
		a := ask{era: w.recorder.era()}
		for _, writer := range writers {
			if acked := writer.acked(); acked.era == a.era {
				a.floor = max(a.floor, acked.rv)
			}
		}
		return a
	}
}

// proxy is a Spillway that can be killed and started again at the same addresses. If it cannot
// start, because upstream does not serve what it is to mirror, it is started again, as by a
// kubelet.
type proxy struct {
	binary, metrics string
	args            []string
	clock           *process.Clock
	hosts           []string
	dir             string
	supervising     sync.WaitGroup

	// Guarded by mu.
	mu      sync.Mutex
	current *proxyProcess
	logs    []*os.File
	slips   []violation // starts that failed
	dead    error       // why it ended though it should not have
}

// proxyProcess is one process of the proxy's.
type proxyProcess struct {
	*process.Child
	killed bool // guarded by proxy.mu
}

// newProxy makes the proxy of one run, and the link to it. A guarded one serves only users that the
// API server authenticates and permits.
func (w *world) newProxy(t *testing.T, binary string, guarded bool) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	config := rest.CopyConfig(w.direct)
	_, port, err := net.SplitHostPort(w.upstream[0].Address())
	if err != nil {
		t.Fatal(err)
	}
	config.Host = "https://" + net.JoinHostPort("localhost", port)
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for range 2 {
		port, err := controlplane.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
	}
	w.clients = newLinkOf(t, addresses[0])
	p := &proxy{binary: binary, dir: dir, clock: w.clock, hosts: process.Hosts(t), metrics: "http://" + addresses[1],
		args: []string{
			"--kubeconfig=" + kubeconfig, "--listen=", "--listen-tls=" + addresses[0], "--metrics-listen=" + addresses[1],
			"--resources=configmaps,pods,widgets." + widgets.Group, "--log-level=debug",
		}}
	if guarded {
		p.args = append(p.args, "--reauthorization-interval=15s") // as often as it can be
	} else {
		p.args = append(p.args, "--insecure-allow-all")
	}
	w.proxy = p
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			p.show(t)
		}
		for _, log := range p.logs {
			_ = log.Close()
		}
	})
	if err := p.start(""); err != nil {
		t.Fatal(err)
	}
	if err := eventually(t.Context(), p.ready); err != nil {
		t.Fatal(err)
	}
}

// start starts it, with a log of its own or one that is given.
func (p *proxy) start(log string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startLocked(log)
}

func (p *proxy) startLocked(log string) error {
	open, name := os.O_WRONLY, log
	if log == "" {
		open |= os.O_CREATE
		name = filepath.Join(p.dir, fmt.Sprintf("log-%d", len(p.logs)))
	}
	out, err := os.OpenFile(name, open, 0o600)
	if err != nil {
		return err
	}
	p.logs = append(p.logs, out)
	cmd := exec.Command(p.binary, p.args...)
	cmd.Env = append(append(cmd.Environ(), p.clock.Variable()), p.hosts...)
	child, err := process.Start(cmd, nil, out)
	if err != nil {
		return err
	}
	l := &proxyProcess{Child: child}
	p.current = l
	p.supervising.Go(func() { p.supervise(l, log) })
	return nil
}

// supervise starts the proxy again if it has ended before it had begun. One that waits for upstream
// is alive all the while.
func (p *proxy) supervise(l *proxyProcess, log string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	begun := false
	for !begun && !l.Ended() {
		probing, done := context.WithTimeout(ctx, time.Second)
		err := process.ExpectOK(probing, p.metrics+"/readyz")
		begun = err == nil || strings.Contains(err.Error(), "[+]start ok")
		done()
		pause(ctx, 50*time.Millisecond)
	}
	<-l.Done
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case l.killed:
	case begun:
		p.dead = fmt.Errorf("the proxy ended by itself: %v", l.Err)
	default:
		p.slips = append(p.slips, violation{time.Now(), fmt.Sprintf("the proxy does not start: %v", l.Err)})
		if err := p.startLocked(log); err != nil {
			p.dead = err
		}
	}
}

func (p *proxy) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current.killed = true
	p.current.Kill()
}

func (p *proxy) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current.Signal(s)
}

// stop ends it for good.
func (p *proxy) stop() {
	p.mu.Lock()
	if l := p.current; l != nil {
		l.killed = true
		_ = l.Signal(syscall.SIGCONT)
		l.Stop(20 * time.Second)
	}
	p.mu.Unlock()
	p.supervising.Wait()
}

// well says what is wrong with the process itself: once alive it never ends unless it is killed,
// and it never panics.
func (p *proxy) well() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead != nil {
		return p.dead
	}
	for _, log := range p.logs {
		if log.Name() == fullDisk {
			continue // to read, it has no end
		}
		text, err := os.ReadFile(log.Name())
		if err != nil {
			return fmt.Errorf("the proxy's log is gone: %w", err)
		}
		for line := range bytes.Lines(text) {
			if bytes.Contains(line, []byte("panic")) {
				return fmt.Errorf("the proxy panics: %s", line)
			}
		}
	}
	return nil
}

// started says what was wrong with its starts: they fail only while upstream is unreachable.
func (p *proxy) started(excused *allowances) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slips {
		if !excused.allow(seam, s.at) {
			return errors.New(s.text)
		}
	}
	return nil
}

func (p *proxy) ready(ctx context.Context) error {
	if err := p.well(); err != nil {
		return err
	}
	return process.ExpectOK(ctx, p.metrics+"/readyz")
}

// show prints the ends of its logs.
func (p *proxy) show(t *testing.T) {
	for i, log := range p.logs {
		if log.Name() == fullDisk {
			continue
		}
		text, err := os.ReadFile(log.Name())
		t.Logf("the end of the proxy's log %d (%v):\n%s", i, err, text[max(0, len(text)-6<<10):])
	}
}

// fullDisk is a file to which nothing can be written for want of room.
const fullDisk = "/dev/full"
