// Package controlplane starts a real Kubernetes control plane (etcd, kube-apiserver and, on demand,
// kube-controller-manager and kube-scheduler) on free loopback ports, and lets a test restart,
// freeze and compact it. The invariant: no process outlives the program that started it, however
// that program ends.
//
// The programs come from `make controlplane`. Linux only: it leans on parent-death signals and
// /proc.
package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
)

// Options say what to start and where. The zero value is etcd and kube-apiserver in a temporary
// folder.
type Options struct {
	// Kubernetes is the minor of kube-apiserver, such as 1.33, which `make controlplane
	// KUBERNETES=1.33` has built. Empty: that of the environment's KUBERNETES, else the newest. All
	// other programs are the newest.
	Kubernetes string
	// FeatureGates is --feature-gates of kube-apiserver. nil: those of the environment's
	// KUBERNETES_FEATURE_GATES.
	FeatureGates map[string]bool
	// Dir keeps etcd's data, credentials, kubeconfigs and logs. Empty: a temporary folder that Stop
	// removes. Starting in the Dir of an earlier control plane finds its objects again, under new
	// ports and credentials.
	Dir string
	// WatchCacheSizes is --watch-cache-sizes, keyed by resource[.group]. Only 0 has a meaning to
	// kube-apiserver: no watch cache for that resource, so that its history is etcd's and Compact
	// shortens it at once. A cache that there is keeps at least the last 75 s whatever its size;
	// RestartAPIServer is what empties it.
	WatchCacheSizes map[string]int
	// ControllerManager and Scheduler are started too, as admin, straight at the API server.
	ControllerManager bool
	Scheduler         bool
	// ServiceAccountAdmission makes pods wait for their namespace's default service account, which
	// only a controller manager creates. Off, pods need none.
	ServiceAccountAdmission bool
	// Users are known besides those that always are, by tokens, and in these groups. RBAC gives them
	// nothing.
	Users map[User][]string
	// APIServerArgs are added to kube-apiserver's command line, after our own.
	APIServerArgs []string
	// EtcdRoute receives the address where etcd is going to listen, and returns the one, host:port, at
	// which kube-apiserver is to reach it: that of something between the two. nil means directly.
	EtcdRoute func(address string) (string, error)
	// SecondEtcd are resources, as group/resource, that kube-apiserver keeps in an etcd of their own,
	// whose revisions are another counter (--etcd-servers-overrides).
	SecondEtcd []string
	// ReadyTimeout bounds each wait for a program to become ready. 0 means 3 minutes: a budget for a
	// busy machine.
	ReadyTimeout time.Duration
	// Log receives a line per program started. nil means none.
	Log io.Writer
}

// ControlPlane is a running control plane. Its methods may be called from any goroutine; ports and
// credentials stay the same for as long as it lives, whatever is stopped and started again.
type ControlPlane struct {
	options Options
	bin     string
	path    string // of kube-apiserver
	minor   int    // its version
	dir     string
	tempDir bool
	ports   ports
	nursery *childStarter
	users   *credentials

	etcdRoute string // host:port at which kube-apiserver reaches etcd

	etcd, apiserver server
}

// server is a program that is started again and again, by one caller at a time. Reading its state
// waits for no caller: an API server that starts waits for etcd, which another goroutine may have
// to thaw or to start first.
type server struct {
	starting sync.Mutex
	current  atomic.Pointer[Process] // the last run that became ready
}

// Start returns a control plane that is ready: its RBAC and the default namespace are in place. ctx
// bounds the starting only; end the control plane with Stop. On error nothing is left behind.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if options.ReadyTimeout == 0 {
		options.ReadyTimeout = 3 * time.Minute
	}
	if options.Log == nil {
		options.Log = io.Discard
	}
	bin, err := BinDir()
	if err != nil {
		return nil, err
	}
	path, err := apiserverOf(bin, cmp.Or(options.Kubernetes, os.Getenv(versionVariable)))
	if err != nil {
		return nil, err
	}
	minor, err := minorOf(path)
	if err != nil {
		return nil, err
	}
	if text := os.Getenv(gatesVariable); text != "" && options.FeatureGates == nil {
		if options.FeatureGates, err = parseGates(text); err != nil {
			return nil, err
		}
	}
	cp := &ControlPlane{options: options, bin: bin, path: path, minor: minor, nursery: newNursery()}
	if err := cp.start(ctx); err != nil {
		cp.Stop()
		return nil, err
	}
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context) error {
	if err := cp.prepare(); err != nil {
		return err
	}
	if err := cp.StartEtcd(ctx); err != nil {
		return err
	}
	if err := cp.startSecondEtcd(ctx); err != nil {
		return err
	}
	if err := cp.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := cp.bootstrap(ctx); err != nil {
		return err
	}
	if cp.options.ControllerManager {
		if _, err := cp.StartControllerManager(ctx, cp.Kubeconfig(Admin)); err != nil {
			return err
		}
	}
	if cp.options.Scheduler {
		if _, err := cp.StartScheduler(ctx, cp.Kubeconfig(Admin)); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes all that the programs need before the first of them starts.
func (cp *ControlPlane) prepare() (err error) {
	if cp.dir = cp.options.Dir; cp.dir == "" {
		cp.tempDir = true
		if cp.dir, err = os.MkdirTemp("", "spillway-controlplane-"); err != nil {
			return fmt.Errorf("cannot make a folder for the control plane: %w", err)
		}
	}
	if cp.dir, err = filepath.Abs(cp.dir); err != nil {
		return fmt.Errorf("cannot resolve %s: %w", cp.dir, err)
	}
	if err := os.MkdirAll(cp.dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the control plane's folder: %w", err)
	}
	if cp.ports, err = choosePorts(); err != nil {
		return err
	}
	if cp.etcdRoute = cp.EtcdAddress(); cp.options.EtcdRoute != nil {
		if cp.etcdRoute, err = cp.options.EtcdRoute(cp.etcdRoute); err != nil {
			return fmt.Errorf("cannot lead kube-apiserver to etcd: %w", err)
		}
	}
	if cp.users, err = newCredentials(cp.dir, cp.options.Users); err != nil {
		return err
	}
	for _, user := range []User{Admin, Alice, Bob, Carol, Anonymous} {
		if err := WriteKubeconfig(cp.Kubeconfig(user), cp.Config(user)); err != nil {
			return err
		}
	}
	return nil
}

// Stop kills every process and removes a temporary folder. It is idempotent and never fails: what
// it kills keeps nothing that is worth a graceful end.
func (cp *ControlPlane) Stop() {
	cp.nursery.close()
	if cp.tempDir && cp.dir != "" {
		os.RemoveAll(cp.dir)
	}
}

// Dir is the folder that holds data, credentials, kubeconfigs and logs.
func (cp *ControlPlane) Dir() string { return cp.dir }

// Minor is the minor version of kube-apiserver: 37 of 1.37.1.
func (cp *ControlPlane) Minor() int { return cp.minor }

// FeatureGates are those that kube-apiserver has been given; all others have its defaults.
func (cp *ControlPlane) FeatureGates() map[string]bool { return cp.options.FeatureGates }

// Newest reports that kube-apiserver is the newest, with its default feature gates.
func (cp *ControlPlane) Newest() bool {
	return cp.path == filepath.Join(cp.bin, "kube-apiserver") && len(cp.options.FeatureGates) == 0
}

// URL is where kube-apiserver listens, https://127.0.0.1:port.
func (cp *ControlPlane) URL() string { return fmt.Sprintf("https://127.0.0.1:%d", cp.ports.apiserver) }

// admin returns a client that may do everything.
func (cp *ControlPlane) admin() (*kubernetes.Clientset, error) {
	client, err := kubernetes.NewForConfig(cp.Config(Admin))
	if err != nil {
		return nil, fmt.Errorf("cannot make an admin client: %w", err)
	}
	return client, nil
}

func (cp *ControlPlane) logf(format string, args ...any) {
	fmt.Fprintf(cp.options.Log, "controlplane: "+format+"\n", args...)
}
