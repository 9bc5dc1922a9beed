package clients

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// client is a row: a program, and how it differs from an informer.
type client struct {
	name string
	*toolchain
	lock    [2]string // the lock file that names its version, and the pattern of the line
	command []string  // in the folder that the toolchain builds

	// unsynced clients do not know when their state is complete.
	unsynced bool
	// coalesces: handlers are called for the last of several changes.
	coalesces bool
	// unfiltered clients hold objects without the label, too.
	unfiltered bool
	// relists: the client lists again whenever a watch ends in an error, so it lists when Spillway is
	// killed, too.
	relists bool
}

var (
	runJava   = []string{"java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", "target/classes:target/lib/*"}
	runPython = []string{"venv/bin/python"}
	runRust   = []string{"./spillway-rust-client"}
	kube      = [2]string{"Cargo.lock", `name = "kube"\nversion = "(.*)"`}
)

var clients = []client{
	{name: "fabric8, `SharedIndexInformer`", toolchain: java, command: append(runJava[:5:5], "Fabric8"),
		lock: [2]string{"pom.xml", `<artifactId>kubernetes-client</artifactId>\s*<version>(.*)<`}},
	{name: "Kubernetes' Java client, `SharedInformerFactory`", toolchain: java, command: append(runJava[:5:5], "Official"),
		relists: true, lock: [2]string{"pom.xml", `<artifactId>client-java</artifactId>\s*<version>(.*)<`}},
	{name: "Kubernetes' Python client, `Watch`", toolchain: python, command: append(runPython[:1:1], "watch.py"),
		lock: [2]string{"requirements.txt", `(?m)^kubernetes==(\S+)`}},
	{name: "Kubernetes' Python client, `SharedInformer`", toolchain: python,
		command: append(runPython[:1:1], "informer.py"), unsynced: true,
		lock: [2]string{"requirements.txt", `(?m)^kubernetes==(\S+)`}},
	{name: "`kubernetes_asyncio`, `Watch`", toolchain: python, command: append(runPython[:1:1], "asynchronous.py"),
		lock: [2]string{"requirements.txt", `(?m)^kubernetes-asyncio==(\S+)`}},
	{name: "kopf, handlers", toolchain: python, command: append(runPython[:1:1], "handlers.py"), unsynced: true,
		coalesces: true, lock: [2]string{"requirements.txt", `(?m)^kopf==(\S+)`}},
	{name: "kube-rs, `watcher`", toolchain: rust, lock: kube, command: append(runRust[:1:1], "watcher")},
	{name: "kube-rs, `watcher`, streaming lists", toolchain: rust, lock: kube,
		command: append(runRust[:1:1], "watcher-streaming")},
	{name: "kube-rs, `reflector`", toolchain: rust, lock: kube, command: append(runRust[:1:1], "reflector")},
	{name: "kube-rs, `reflector`, streaming lists", toolchain: rust, lock: kube,
		command: append(runRust[:1:1], "reflector-streaming")},
	{name: "Kubernetes' JavaScript client, `makeInformer`", toolchain: javascript,
		command: []string{"node", "informer.js"},
		lock:    [2]string{"package-lock.json", `"node_modules/@kubernetes/client-node": {\s*"version": "(.*)"`}},
	clientGo("go.mod"), clientGo("go-1.35.mod"), clientGo("go-1.33.mod"), clientGo("go-1.30.mod"),
	inGo("controller-runtime, `cache`", "controllerruntime", "sigs.k8s.io/controller-runtime"),
	{name: "Prometheus, discovery of Services", toolchain: golang("prometheus", "go.mod"), command: []string{"./client"},
		lock: required("go.mod", "github.com/prometheus/prometheus"), unsynced: true, coalesces: true},
	{name: "Argo CD's gitops-engine, cluster cache", toolchain: golang("argocd", "go.mod"), command: []string{"./client"},
		lock: required("go.mod", "github.com/argoproj/gitops-engine"), unfiltered: true, coalesces: true},
	{name: "external-dns, source of Services", toolchain: golang("externaldns", "go.mod"), command: []string{"./client"},
		lock: required("go.mod", "sigs.k8s.io/external-dns"), coalesces: true},
}

// required is where a module file names the version of a module.
func required(file, module string) [2]string {
	return [2]string{file, regexp.QuoteMeta(module) + ` v(\S+)`}
}

func inGo(name, folder, module string) client {
	return client{name: name, toolchain: golang(folder, "go.mod"), command: []string{"./client"},
		lock: required("go.mod", module)}
}

// clientGo is an informer of the client-go that a module file names.
func clientGo(file string) client {
	return client{name: "client-go, `SharedInformerFactory`", toolchain: golang("clientgo", file),
		command: []string{"./client"}, lock: required(file, "k8s.io/client-go")}
}

var only = flag.String("only", "", "run the clients whose names this regular expression matches")

// run is a client that runs: directly, or through Spillway.
type run struct {
	*program
	client client
	user   controlplane.User
	phases []int // LISTs in each
}

// scene is a cluster with a writer, a Spillway, and all clients twice.
type scene struct {
	*authcluster.Cluster
	t       *testing.T
	writer  *writer
	binary  string
	front   *replicas
	proxy   *process.Proxy
	flags   []string
	logs    []*authcluster.Audit
	direct  []*run
	through []*run
	outage  [2]map[string]int // how many changes each object had had before it and after it
}

// TestClients runs every client directly and through Spillway, while objects change, Spillway is
// killed, another replica takes over, and kube-apiserver is restarted.
func TestClients(t *testing.T) {
	if !*update {
		documented(t)
	}
	built := buildAll(t)
	s := newScene(t, built)
	s.start(built)
	s.await("to be synced", func(r *run) error {
		if !r.synced() && !r.client.unsynced {
			return errors.New("not synced")
		}
		return nil
	})
	s.phase("start", func() { s.writer.start(t) })
	for _, r := range s.all() {
		r.phases = nil // the first LISTs
	}
	s.phase("Spillway is killed", func() {
		s.proxy.Kill()
		time.Sleep(time.Second)
		s.startProxy()
	})
	s.phase("another replica takes over", func() {
		old := s.proxy
		s.startProxy()
		old.Stop()
	})
	s.outage[0] = s.writer.counts()
	s.phase("kube-apiserver is restarted", func() { must(t, s.RestartAPIServer(t.Context())) })
	s.outage[1] = s.writer.counts()
	s.writer.end()
	s.check()
}

// buildAll returns the folders of the clients whose toolchains are there.
func buildAll(t *testing.T) map[*toolchain]string {
	t.Helper()
	built := map[*toolchain]string{}
	for _, c := range clients {
		if _, ok := built[c.toolchain]; ok || !regexp.MustCompile(*only).MatchString(c.name) {
			continue
		}
		built[c.toolchain] = ""
		if missing := c.missing(t); missing != "" {
			t.Logf("SKIPPED the clients of %s: %s", c.folder, missing)
			continue
		}
		began := time.Now()
		dir, err := c.built(t.Context(), process.Repository(t))
		if err != nil {
			t.Errorf("the clients of %s: %v", c.folder, err)
			continue
		}
		if took := time.Since(began); took > time.Second {
			t.Logf("built the clients of %s in %v", c.folder, took.Round(time.Second))
		}
		built[c.toolchain] = dir
	}
	return built
}

func user(way string, i int) controlplane.User { return controlplane.User(fmt.Sprint(way, "-", i)) }

func newScene(t *testing.T, built map[*toolchain]string) *scene {
	t.Helper()
	const group = "clients"
	users := map[controlplane.User][]string{}
	for i := range clients {
		users[user("direct", i)], users[user("through", i)] = []string{group}, []string{group}
	}
	s := &scene{Cluster: authcluster.Start(t, authcluster.Options{Users: users}), t: t, binary: process.BuildProxy(t)}
	s.Namespace(t, namespace)
	s.GrantTo(
		t,
		authcluster.Group(group),
		authcluster.In(namespace, authcluster.Rule("get,list,watch", "", "configmaps,services")),
	)
	s.Settle(t)
	s.logs = []*authcluster.Audit{s.Audit}
	authority, err := controlplane.NewAuthority()
	must(t, err)
	pair, err := authority.IssueServer("spillway")
	must(t, err)
	s.File(t, "spillway-ca.crt", authority.PEM())
	s.flags = append(s.ProxyFlags(), "--resources=configmaps,services", "--drain-period=2s",
		"--tls-cert-file="+s.File(t, "spillway.crt", pair.Cert),
		"--tls-private-key-file="+s.File(t, "spillway.key", pair.Key))
	s.front = newSwitch(t)
	s.startProxy()
	s.writer = newWriter(s.Admin)
	for range writtenObjects {
		must(t, s.writer.one(t.Context()))
	}
	return s
}

// startProxy starts a Spillway, and leads new connections to it.
func (s *scene) startProxy() {
	s.t.Helper()
	flags, log := authcluster.NewAudit(s.t)
	s.logs = append(s.logs, log)
	s.proxy = process.StartProxy(s.t, s.binary, append(slices.Clone(s.flags), flags[:2]...)...) // policy and path
	s.front.to(s.t, s.proxy.TLS)
}

// start starts all that is built, directly and through Spillway.
func (s *scene) start(built map[*toolchain]string) {
	s.t.Helper()
	ca := s.File(s.t, "ca.crt", s.CA())
	dir := filepath.Dir(ca)
	for i, c := range clients {
		if built[c.toolchain] == "" || !regexp.MustCompile(*only).MatchString(c.name) {
			continue
		}
		one := func(way, url, ca string) *run {
			u := user(way, i)
			token := s.File(s.t, string(u)+".token", []byte(s.Config(u).BearerToken))
			name := c.name + ", " + way
			return &run{client: c, user: u, program: startProgram(s.t, name, built[c.toolchain],
				append(slices.Clone(c.command), url, ca, token, namespace)...)}
		}
		s.direct = append(s.direct, one("direct", s.URL(), ca))
		s.through = append(s.through, one("through", s.front.url, filepath.Join(dir, "spillway-ca.crt")))
	}
}

func (s *scene) all() []*run { return slices.Concat(s.direct, s.through) }

// await waits for every client at once.
func (s *scene) await(what string, try func(*run) error) {
	s.t.Helper()
	var waiting sync.WaitGroup
	var failed atomic.Bool
	for _, r := range s.all() {
		waiting.Go(func() {
			ctx, cancel := context.WithTimeout(s.t.Context(), process.Patience)
			defer cancel()
			for {
				err := try(r)
				if err == nil {
					return
				}
				if r.Ended() || ctx.Err() != nil {
					s.t.Errorf("%s: waiting for it %s: %v", r.name, what, err)
					failed.Store(true)
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	waiting.Wait()
	if failed.Load() {
		s.t.FailNow()
	}
}

// phase does something, waits until every client has what was written afterwards, and counts.
func (s *scene) phase(what string, do func()) {
	s.t.Helper()
	began := time.Now()
	before := map[*run]int{}
	for _, r := range s.all() {
		before[r] = s.requests(r).lists
	}
	do()
	s.behind(what)
	for _, r := range s.all() {
		r.phases = append(r.phases, s.requests(r).lists-before[r])
	}
	s.t.Logf("%s: %v", what, time.Since(began).Round(time.Millisecond))
}

// behind waits until every client has what is written from now on.
func (s *scene) behind(what string) {
	s.t.Helper()
	value := s.writer.mark(s.t)
	s.await("to go on after "+what, func(r *run) error {
		return r.holds(s.t, func(state map[string]string) error {
			if state[marker] != value {
				return fmt.Errorf("it holds %q, want %q", state[marker], value)
			}
			return nil
		})
	})
}

func (s *scene) requests(r *run) requests { return requestsOf(s.t, string(r.user), s.logs...) }

// check expects each client to hold what kube-apiserver lists, to have received each change once
// if it never listed again, and to have listed no more often than directly.
func (s *scene) check() {
	s.t.Helper()
	s.behind("all")
	all, some := s.writer.listed(s.t, ""), s.writer.listed(s.t, selector)
	var mu sync.Mutex
	equal := map[*run]bool{}
	s.await("to hold what kube-apiserver lists", func(r *run) error {
		want := some
		if r.client.unfiltered {
			want = all
		}
		state, err := r.state(s.t.Context())
		if err == nil {
			err = equals(want)(state)
		}
		mu.Lock()
		equal[r] = err == nil
		mu.Unlock()
		return err
	})
	if *update {
		s.write(equal)
	}
	for i, r := range s.through {
		direct := s.direct[i]
		s.t.Logf("%s: lists %v, directly %v; %s; directly %s", r.client.name, r.phases, direct.phases, s.requests(r).how,
			s.requests(direct).how)
		for phase, lists := range r.phases {
			if lists > direct.phases[phase] && !r.client.relists {
				s.t.Errorf("%s lists %v times in the phases, directly %v", r.name, r.phases, direct.phases)
				break
			}
		}
	}
	for _, r := range s.all() {
		if r.client.coalesces || slices.Max(r.phases) > 0 {
			continue
		}
		got := r.changes()
		for _, name := range slices.Sorted(maps.Keys(s.writer.changes)) {
			changes := s.writer.changes[name]
			want := s.since(r, name, changes)
			early := len(changes) - len(want)
			from, to := max(0, s.outage[0][name]-early), max(0, s.outage[1][name]-early)
			if !equalAround(got[name], want, from, to) {
				s.t.Errorf("%s received of %s\n%v, want\n%v", r.name, name, got[name], want)
			}
		}
	}
}

// equalAround compares the changes of an object. Of those from and before to, which were made while
// kube-apiserver was restarted, some may be missing: it accepts writes after it has ended its
// watches, and once it is back it has only their result.
func equalAround(got, want []string, from, to int) bool {
	after := want[to:]
	if len(got) < from+len(after) {
		return false
	}
	end := len(got) - len(after)
	left := want[from:to]
	for _, change := range got[from:end] {
		_, value, _ := strings.Cut(change, " ") // an update may be seen as the addition
		i := slices.IndexFunc(left, func(w string) bool { _, v, _ := strings.Cut(w, " "); return v == value })
		if i < 0 {
			return false
		}
		left = left[i+1:]
	}
	return slices.Equal(got[:from], want[:from]) && slices.Equal(got[end:], after)
}

func TestChangesAroundAnOutage(t *testing.T) {
	want := []string{"add 1", "delete", "add 2", "update 3", "update 4"}
	for _, c := range []struct {
		got string
		ok  bool
	}{
		{"add 1,delete,add 2,update 3,update 4", true},
		{"add 1,delete,add 3,update 4", true},
		{"add 1,update 3,update 4", true},
		{"add 1,update 4", true},
		{"delete,add 2,update 3,update 4", false},
		{"add 1,delete,add 3", false},
		{"add 1,update 3,update 2,update 4", false},
		{"add 1,delete,add 3,update 4,update 4", false},
	} {
		if got := strings.Split(c.got, ","); equalAround(got, want, 1, 4) != c.ok {
			t.Errorf("%s: accepted: %t", c.got, !c.ok)
		}
	}
}

// since are the changes of an object that a client was to receive: the client listed the state that
// earlier ones had led to.
func (s *scene) since(r *run, name string, changes []string) []string {
	first := r.changes()[name]
	if len(first) == 0 || !strings.HasPrefix(first[0], "add ") {
		return changes
	}
	value := strings.TrimPrefix(first[0], "add ")
	for i, change := range changes {
		if change == "add "+value || change == "update "+value {
			return append([]string{first[0]}, changes[i+1:]...)
		}
	}
	return changes
}
