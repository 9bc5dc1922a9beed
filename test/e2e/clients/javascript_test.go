package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const namespace = "javascript"

// TestJavaScript lets the informer of the JavaScript client list and watch, changes objects, ends
// its stream, and has it resume at another replica from where it was (W-112, W-190's kin: it sends
// resourceVersion and no bookmarks, and takes no gzip).
func TestJavaScript(t *testing.T) {
	node := installed(t)
	cp, client := startControlPlane(t)
	_, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(t, err)
	w := &writer{client: client}
	w.put(t, "early", "1", true)
	w.put(t, "unseen", "1", false)

	binary := process.BuildProxy(t)
	replica := func() *process.Proxy {
		return process.StartProxy(t, binary, "--kubeconfig="+cp.Kubeconfig(controlplane.Admin), "--resources=configmaps",
			"--listen-identity=self", "--drain-period=1s")
	}
	first, second := replica(), replica()
	front := newSwitch(t, first.Plain)
	informer := startInformer(t, node, front.url)

	informer.await(t, w.wanted)
	w.put(t, "late", "1", true)
	w.put(t, "early", "2 <&> ü \u2028", true)
	w.put(t, "unseen", "2", false)
	informer.await(t, w.wanted)
	w.remove(t, "late")
	w.put(t, "unseen", "3", true) // which comes into sight
	w.put(t, "early", "3", false) // and which leaves it
	informer.await(t, w.wanted)

	if n := process.Metric(t, first.Metrics, "spillway_watches"); n != 1 {
		t.Errorf("the first replica serves %d watches from memory, want 1", n)
	}
	connected := informer.count("connect")
	front.to(t, second.Plain)
	first.Stop() // which ends the stream as a drain does
	process.Awaiting(t, "the informer to connect again", func(context.Context) error {
		if informer.count("connect") == connected {
			return errors.New("still at the first replica")
		}
		return nil
	})
	w.put(t, "afterwards", "1", true)
	w.remove(t, "unseen")
	informer.await(t, w.wanted)
	informer.expectTold(t, w)
	if n := informer.count("error"); n > 0 {
		t.Errorf("the informer met %d errors: %s", n, informer.log.Text())
	}
	if n := process.Metric(t, second.Metrics, "spillway_watches"); n != 1 {
		t.Errorf("the second replica serves %d watches from memory, want 1", n)
	}
}

// installed is the program that runs JavaScript, once the client is installed for it. Where it is
// missing the test is skipped; in CI it may not be missing.
func installed(t *testing.T) string {
	t.Helper()
	node, err := exec.LookPath("node")
	npm, err2 := exec.LookPath("npm")
	if err := errors.Join(err, err2); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("in CI the JavaScript client must be tested: %v", err)
		}
		t.Skipf("the JavaScript client is not tested, since this machine lacks Node.js: %v (make node installs it)", err)
	}
	if upToDate() {
		return node
	}
	t.Log("installing what javascript/package-lock.json names (npm ci, a quarter of a minute)")
	install := exec.CommandContext(t.Context(), npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = "javascript"
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return node
}

// upToDate reports that what is installed was installed from the present lock.
func upToDate() bool {
	lock, err := os.Stat("javascript/package-lock.json")
	installed, err2 := os.Stat("javascript/node_modules/.package-lock.json") // npm writes it last
	return err == nil && !errors.Is(err2, fs.ErrNotExist) && err2 == nil && installed.ModTime().After(lock.ModTime())
}

// writer changes ConfigMaps and remembers what an informer of those labelled seen must end with,
// and must have received.
type writer struct {
	client kubernetes.Interface
	wanted map[string]string // value by name
	told   []string
}

func (w *writer) put(t *testing.T, name, value string, seen bool) {
	t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"seen": fmt.Sprint(seen)}},
		Data: map[string]string{"value": value}}
	maps := w.client.CoreV1().ConfigMaps(namespace)
	if _, err := maps.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		_, err = maps.Create(t.Context(), o, metav1.CreateOptions{})
		must(t, err)
	}
	if w.wanted == nil {
		w.wanted = map[string]string{}
	}
	_, known := w.wanted[name]
	switch {
	case seen && known:
		w.told = append(w.told, "update "+name)
	case seen:
		w.told = append(w.told, "add "+name)
	case known:
		w.told = append(w.told, "delete "+name)
	}
	delete(w.wanted, name)
	if seen {
		w.wanted[name] = value
	}
}

func (w *writer) remove(t *testing.T, name string) {
	t.Helper()
	must(t, w.client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	delete(w.wanted, name)
	w.told = append(w.told, "delete "+name)
}

// informer is a running javascript/informer.js.
type informer struct {
	*process.Child
	log *process.Log
}

func startInformer(t *testing.T, node, server string) *informer {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	// which it requests over plain HTTP
	must(t, controlplane.WriteKubeconfig(kubeconfig,
		&rest.Config{Host: server, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}))
	cmd := exec.Command(node, "informer.js", namespace, "seen=true")
	cmd.Dir, cmd.Env = "javascript", append(os.Environ(), "KUBECONFIG="+kubeconfig)
	i := &informer{log: process.NewLog(t)}
	var err error
	i.Child, err = process.Start(cmd, nil, i.log.File)
	must(t, err)
	t.Cleanup(func() {
		i.Stop(5 * time.Second)
		if t.Failed() {
			i.log.Show(t)
		}
	})
	return i
}

// line is one call of the informer's handlers.
type line struct {
	What, Name, Message string
	Data                map[string]string
}

func (i *informer) lines() []line {
	var lines []line
	for text := range bytes.Lines(i.log.Text()) {
		var l line
		if json.Unmarshal(text, &l) == nil { // the last one may not be whole yet
			lines = append(lines, l)
		}
	}
	return lines
}

func (i *informer) count(what string) int {
	n := 0
	for _, l := range i.lines() {
		if l.What == what {
			n++
		}
	}
	return n
}

// state is what follows from the handlers' calls.
func (i *informer) state() map[string]string {
	state := map[string]string{}
	for _, l := range i.lines() {
		switch l.What {
		case "add", "update":
			state[l.Name] = l.Data["value"]
		case "delete":
			delete(state, l.Name)
		}
	}
	return state
}

func (i *informer) await(t *testing.T, wanted map[string]string) {
	t.Helper()
	process.Awaiting(t, "the informer to know", func(context.Context) error {
		if i.Ended() {
			i.log.Show(t)
			t.Fatalf("the informer ended: %v", i.Err)
		}
		if state := i.state(); !maps.Equal(state, wanted) {
			return fmt.Errorf("it has %v, want %v", state, wanted)
		}
		return nil
	})
}

// expectTold expects each change once, in its order. The first objects are in the order of the
// list.
func (i *informer) expectTold(t *testing.T, w *writer) {
	t.Helper()
	var told []string
	for _, l := range i.lines() {
		if l.What != "connect" && l.What != "error" {
			told = append(told, l.What+" "+l.Name)
		}
	}
	if !slices.Equal(told, w.told) {
		t.Errorf("the informer received\n%v, want\n%v", told, w.told)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
