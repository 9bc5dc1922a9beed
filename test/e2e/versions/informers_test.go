package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const (
	// together is how many informers start together, and statesAtMost how often the API server may
	// have to send them, or the mirror for them, its state.
	together, statesAtMost = 200, 2
	// oneState is for how long one state does, on a machine where a start takes longer than twice that
	// (design D7).
	oneState = 1500 * time.Millisecond
	// many is how many start at the API server itself, too, for comparison.
	many = 500
	// informed is the namespace that informers watch.
	informed = "informed"
)

// TestInformersOfOlderClients starts informers of client-go 1.30, 1.33, 1.35 and 1.37, each many at
// once, through Spillway: all sync, hold what a LIST shows, follow changes, and cost the API server
// two LISTs at most.
func TestInformersOfOlderClients(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds four versions of client-go")
	}
	w := newInformed(t)
	for _, c := range []struct {
		version  string
		modfile  string
		informer int
	}{{"1.30", "go-1.30.mod", together}, {"1.33", "go-1.33.mod", together}, {"1.35", "go-1.35.mod", together},
		{"1.37", "go.mod", together}, {"1.37", "go.mod", many}} {
		t.Run(fmt.Sprintf("%d of client-go %s", c.informer, c.version), func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "clientgo")
			build := exec.CommandContext(t.Context(), "go", "build", "-modfile="+c.modfile, "-o", binary, ".")
			build.Dir = "../clients/clientgo"
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("cannot build the client: %v\n%s", err, out)
			}
			proxy := process.StartProxy(t, w.proxy, "--kubeconfig="+w.cp.Kubeconfig(controlplane.Admin),
				"--resources=configmaps", "--listen-identity=self")
			states, took := w.start(t, binary, proxy.Plain, c.informer)
			if most := max(statesAtMost, 1+int(took/oneState)); states > most {
				t.Errorf("the API server sent its state %d times, want %d at most", states, most)
			}
			proxy.Stop()
			if c.informer == many {
				w.start(t, binary, w.cp.URL(), c.informer)
			}
		})
	}
}

// informedWorld is a control plane with an audit log.
type informedWorld struct {
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
	audit  *authcluster.Audit
	proxy  string // the program
	ca     string // files
	token  string
	writes int
}

func newInformed(t *testing.T) *informedWorld {
	t.Helper()
	flags, audit := authcluster.NewAudit(t)
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output(), APIServerArgs: flags})
	must(t, err)
	t.Cleanup(cp.Stop)
	w := &informedWorld{cp: cp, audit: audit, proxy: process.BuildProxy(t), ca: filepath.Join(t.TempDir(), "ca"),
		token: filepath.Join(t.TempDir(), "token")}
	must(t, os.WriteFile(w.ca, cp.CA(), 0o600))
	must(t, os.WriteFile(w.token, []byte(cp.Config(controlplane.Admin).BearerToken), 0o600))
	w.client, err = kubernetes.NewForConfig(cp.Config(controlplane.Admin))
	must(t, err)
	_, err = w.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: informed}}, metav1.CreateOptions{})
	must(t, err)
	for i := range 20 {
		w.put(t, fmt.Sprint("object-", i))
	}
	return w
}

// put creates or changes an object.
func (w *informedWorld) put(t *testing.T, name string) {
	t.Helper()
	w.writes++
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"seen": "true"},
		Annotations: map[string]string{"value": strconv.Itoa(w.writes)}}}
	objects := w.client.CoreV1().ConfigMaps(informed)
	if _, err := objects.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		_, err = objects.Create(t.Context(), o, metav1.CreateOptions{})
		must(t, err)
	}
}

// states are the requests received since then by which the API server has sent the state of
// ConfigMaps, by audit identity. A probe of what it can selects nothing, and a page of one object
// is no state.
func (w *informedWorld) states(t *testing.T, since time.Time) map[string]string {
	t.Helper()
	sent := map[string]string{}
	for _, e := range w.audit.Entries(t, "/configmaps") {
		query, err := url.Parse(e.RequestURI)
		must(t, err)
		q := query.Query()
		state := e.Verb == "list" && q.Get("limit") != "1" || q.Get("sendInitialEvents") == "true"
		probe := strings.Contains(q.Get("fieldSelector"), "!=")
		recent := !e.RequestReceivedTimestamp.Before(since)
		if state && !probe && recent && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusOK {
			sent[e.AuditID] = e.RequestURI + " " + e.UserAgent
		}
	}
	return sent
}

// start runs informers against a server until they have followed some changes, and returns how
// often the API server has sent its state until they had synced, and how long that took.
func (w *informedWorld) start(t *testing.T, binary, server string, informers int) (states int, took time.Duration) {
	t.Helper()
	began := time.Now()
	spent, err := w.cp.APIServer().CPU()
	must(t, err)
	stop := w.moveOn(t)
	cmd := exec.CommandContext(t.Context(), binary, server, w.ca, w.token, informed, strconv.Itoa(informers))
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := make(chan programLine, 1<<12)
	go read(out, lines)
	expect(t, lines, "synced")
	stop()
	took = time.Since(began)
	sent := w.states(t, began)
	states = len(sent)
	now, err := w.cp.APIServer().CPU()
	must(t, err)
	t.Logf("%s: %d informers have synced after %v: %d states and %v of CPU of the API server", server, informers,
		took.Round(time.Millisecond), states, now-spent)
	if states < many {
		t.Log(slices.Collect(maps.Values(sent)))
	}
	w.put(t, "object-0")
	w.put(t, "new-"+strconv.Itoa(w.writes))
	must(t, w.client.CoreV1().ConfigMaps(informed).Delete(t.Context(), "new-"+strconv.Itoa(w.writes-1),
		metav1.DeleteOptions{}))
	w.put(t, "last")
	list, err := w.client.CoreV1().ConfigMaps(informed).List(t.Context(), metav1.ListOptions{LabelSelector: "seen=true"})
	must(t, err)
	truth := map[string]string{}
	for _, o := range list.Items {
		truth[o.Name] = o.Annotations["value"]
	}
	process.Awaiting(t, "the informers to hold what a LIST shows", func(context.Context) error {
		if _, err := io.WriteString(in, "\n"); err != nil {
			return err
		}
		if state := expect(t, lines, "state"); state.Unlike > 0 || !maps.Equal(state.Objects, truth) {
			return fmt.Errorf("%d differ from the first, which has %v, want %v", state.Unlike, state.Objects, truth)
		}
		return nil
	})
	must(t, in.Close())
	for range lines { // up to its end
	}
	must(t, cmd.Wait())
	return states, took
}

// moveOn writes to another resource twenty times a second until it is stopped, so that the version
// of the store is beyond what the mirror has heard of, as in a cluster that is in use.
func (w *informedWorld) moveOn(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var writes sync.WaitGroup
	writes.Go(func() {
		for due := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-due.C {
			o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "elsewhere-"}}
			if _, err := w.client.CoreV1().Secrets(informed).Create(ctx, o, metav1.CreateOptions{}); err != nil &&
				ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	return func() { cancel(); writes.Wait() }
}

// programLine is a line of the program.
type programLine struct {
	What    string
	Objects map[string]string
	Unlike  int
}

// read reads lines until the program closes its output.
func read(out io.Reader, lines chan<- programLine) {
	defer close(lines)
	text := bufio.NewScanner(out)
	for text.Scan() {
		var l programLine
		if json.Unmarshal(text.Bytes(), &l) == nil {
			lines <- l
		}
	}
}

// expect waits for a line.
func expect(t *testing.T, lines <-chan programLine, what string) programLine {
	t.Helper()
	timeout := time.After(process.Patience)
	for {
		select {
		case l, ok := <-lines:
			if !ok {
				t.Fatalf("the program ended before it said %q", what)
			}
			if l.What == what {
				return l
			}
		case <-timeout:
			t.Fatalf("waiting for %q", what)
		}
	}
}
