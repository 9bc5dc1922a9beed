package restart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// kubeconfigWith names a CA file and a token file.
const kubeconfigWith = `{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority":%q}}],
"users":[{"name":"c","user":{"tokenFile":%q}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}`

// The cluster's CA is rotated: the file gets the new one, kube-apiserver a certificate of it, and
// the file loses the old one. No informer lists again, what is followed and executed goes on, and
// writes fail only while kube-apiserver is down.
func TestCertificateAuthorityRotated(t *testing.T) {
	next, err := controlplane.NewAuthority()
	must(t, err)
	s := newScene(t, next)
	dir := t.TempDir()
	ca, token, kubeconfig := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token"), filepath.Join(dir, "kubeconfig")
	admin := s.cp.Config(controlplane.Admin)
	first := s.cp.CA()
	must(t, os.WriteFile(ca, first, 0o600))
	must(t, os.WriteFile(token, []byte(admin.BearerToken), 0o600))
	must(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, kubeconfigWith, s.cp.URL(), ca, token), 0o600))
	p := process.StartProxy(t, s.binary, "--kubeconfig="+kubeconfig, "--resources=configmaps", "--log-level=info")
	client := &rest.Config{Host: p.Plain, BearerToken: admin.BearerToken}
	k := newKubelet(t, s.direct)
	c := newInformerGroup(t, client, *informerCount)
	w := startWriter(t, client)
	changed := func(n int) {
		t.Helper()
		process.Awaiting(t, "the proxy to follow its CA file", func(ctx context.Context) error {
			got, err := process.ReadMetric(ctx, p.Metrics, fmt.Sprintf("spillway_file_reloads_total{file=%q", ca))
			if err == nil && got != n {
				err = fmt.Errorf("%d changes, want %d", got, n)
			}
			return err
		})
	}
	var down, up time.Time
	s.disturb(c, "the CA is rotated", func() {
		talk := k.converse(t, client)
		talk.check(t, "before")
		must(t, os.WriteFile(ca, slices.Concat(first, next.PEM()), 0o600))
		changed(1)
		talk.check(t, "with both authorities")
		must(t, s.cp.ServeWith(next))
		down = time.Now()
		must(t, s.cp.RestartAPIServer(t.Context()))
		up = time.Now()
		w.succeeds(10)
		talk = k.converse(t, client)
		must(t, os.WriteFile(ca, next.PEM(), 0o600))
		changed(2)
		talk.check(t, "without the first authority")
		k.converse(t, client).check(t, "on new connections")
		w.succeeds(10)
		w.end() // what the informers hold is then compared with a LIST
	})
	failed := 0
	for _, f := range w.failed {
		if failed++; f.ended.Before(down) || f.began.After(up) {
			t.Errorf("a write failed while kube-apiserver was up, %v after it: %v", f.began.Sub(up), f.err)
		}
	}
	t.Logf("%d writes through the proxy, %d failed, all while kube-apiserver was down for %v", w.written, failed,
		up.Sub(down).Round(time.Millisecond))
}

// writer writes through the proxy all the while.
type writer struct {
	t    *testing.T
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	written int
	failed  []failure
}

type failure struct {
	began, ended time.Time
	err          error
}

func startWriter(t *testing.T, config *rest.Config) *writer {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout = -1, 30*time.Second
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	w := &writer{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	w.done.Go(func() { w.run(ctx, client) })
	t.Cleanup(w.end)
	return w
}

func (w *writer) run(ctx context.Context, client kubernetes.Interface) {
	for i := 0; ctx.Err() == nil; i++ {
		began := time.Now()
		patch := fmt.Appendf(nil, `{"data":{"written":"%d"}}`, i)
		_, err := client.CoreV1().ConfigMaps(pulseNamespace).Patch(ctx, pulseName, types.MergePatchType, patch,
			metav1.PatchOptions{})
		w.mu.Lock()
		switch {
		case err == nil:
			w.written++
		case ctx.Err() == nil:
			w.failed = append(w.failed, failure{began, time.Now(), err})
		}
		w.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

// succeeds waits for so many more writes.
func (w *writer) succeeds(n int) {
	w.t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.written
	}
	least := count() + n
	process.Awaiting(w.t, "writes through the proxy", func(context.Context) error {
		if got := count(); got < least {
			return fmt.Errorf("%d of %d", got, least)
		}
		return nil
	})
}

func (w *writer) end() {
	w.stop()
	w.done.Wait()
}
