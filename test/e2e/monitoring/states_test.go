package monitoring

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// real has the alerts wait as long as the chart has them wait; otherwise a twentieth of that.
var real = flag.Bool("real", false, "let alerts wait as long as the chart says: half an hour in all")

const hurry = 20

// The proxies, each in a state of its own, and the alerts that it is for.
const (
	well     = "well"     // all that it is to mirror is there
	misnamed = "misnamed" // of its resources one is misspelt, one forbidden, one missing
	denied   = "denied"   // loses the right to send reviews
	burdened = "burdened" // has a client that does not read
	worn     = "worn"     // has a certificate that is not renewed, and then one that is broken
)

// Each alert fires for a running proxy in the state that it is for, by a real Prometheus that reads
// what the proxy serves, and for no other. Readiness, log and check name each cause. Prometheus
// goes on reading while the API server is frozen.
func TestAlertsOfRunningProxies(t *testing.T) {
	s := newStateWorld(t, well, misnamed, denied)
	cp := s.cp
	s.run(well, "configmaps,services")
	s.run(misnamed, "configmaps,podz.example.com,nodes,widgets.v1.example.com")
	s.run(denied, "configmaps")
	s.startPrometheus()
	for _, name := range []string{well, denied} {
		s.watch(name)
	}

	s.phase("all is well", map[string][]string{misnamed: {"SpillwayMirrorNotSynced"}})
	s.says(misnamed, `[!]mirror podz.example.com refused for `,
		`the API server serves no resource "podz.example.com"; did you mean pods`,
		`resources ["nodes"], verbs [get, list, watch]`, `[!]mirror widgets.example.com refused for `, `[+]reviews ok`)
	s.logs(misnamed, `the API server serves no resource \"podz.example.com\"`,
		`resources [\"nodes\"], verbs [get, list, watch]`,
		`the API server serves no resource \"widgets.v1.example.com\"`)
	if refused := s.unsynced(misnamed); !slices.Equal(refused,
		[]string{"nodes", "podz.example.com", "widgets.example.com"}) {
		t.Errorf("SpillwayMirrorNotSynced fires for %q", refused)
	}
	s.checks(misnamed, "[!]mirror nodes refused for ", "FAILED  LIST nodes: not from memory but from the API server: "+
		"/readyz?verbose, above, says why")
	s.checks(well, "ok      /readyz?verbose: nothing is wrong")

	s.kubectl("delete", "clusterrolebinding", "denied-reviews")
	s.phase("reviews are denied", map[string][]string{misnamed: {"SpillwayMirrorNotSynced"},
		denied: {"SpillwayReviewsDenied", "SpillwayWatchesPaused"}})
	s.says(denied, "[!]reviews refused for ", "give Spillway the rights of the cluster role system:auth-delegator")
	s.logs(denied, "upstream denies Spillway reviews of the identity of clients and of their permissions: give it")
	s.checks(denied, "[!]reviews refused for ")

	must(t, cp.FreezeAPIServer())
	thaw := func() { must(t, cp.ThawAPIServer()) }
	s.phase("the API server is frozen", map[string][]string{well: {"SpillwayStateStale", "SpillwayWatchesPaused"},
		misnamed: {"SpillwayMirrorNotSynced", "SpillwayStateStale"},
		denied:   {"SpillwayWatchesPaused", "SpillwayStateStale"}}) // whether reviews are denied is not known now
	if *real {
		time.Sleep(3 * time.Minute) // what is to stay silent, too, has its time
	}
	s.says(well, "[!]upstream: unreachable; 2 resources are ", "[!]reviews unanswered for ",
		"[!]mirror configmaps resuming for ")
	s.logs(well, "the API server does not answer", `"oldMirrors":2`, "upstream does not answer reviews of the identity")
	if text := string(s.proxies[well].Log.Text()); strings.Contains(text, "system:auth-delegator") {
		t.Error("a time-out is told as a missing role")
	}
	s.phase("the API server is frozen", s.allowed)
	thaw()
	s.kubectl("create", "clusterrolebinding", "denied-reviews", "--clusterrole=system:auth-delegator",
		"--serviceaccount=default:"+denied)
	s.phase("it answers again", map[string][]string{misnamed: {"SpillwayMirrorNotSynced"}})

	s.proxies[well].Kill()
	s.phase("one is killed", map[string][]string{misnamed: {"SpillwayMirrorNotSynced"}, well: {"SpillwayDown"}})
}

// The alerts about a client and about files fire for running proxies, too, and only for these.
func TestAlertsAboutClientsAndFiles(t *testing.T) {
	s := newStateWorld(t, burdened, worn)
	authority, err := controlplane.NewAuthority()
	must(t, err)
	cert, key := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	renew := func(end time.Time) {
		pair, err := authority.IssueClientUntil(end, worn) // which no client of this test verifies
		must(t, err)
		must(t, os.WriteFile(cert, pair.Cert, 0o600))
		must(t, os.WriteFile(key, pair.Key, 0o600))
	}
	renew(time.Now().Add(time.Hour))
	large := filepath.Join(t.TempDir(), "large")
	must(t, os.WriteFile(large, bytes.Repeat([]byte("x"), 900<<10), 0o600))
	for i := range 10 { // more than sockets hold
		s.kubectl("create", "configmap", fmt.Sprintf("large-%d", i), "--from-file="+large)
	}
	s.run(burdened, "configmaps", "--stall-timeout=1s")
	s.run(worn, "configmaps", "--tls-cert-file="+cert, "--tls-private-key-file="+key)
	s.startPrometheus()
	s.neglect(burdened)

	slow := []string{"SpillwaySlowClients"}
	s.phase("a certificate has an hour, and a client does not read", map[string][]string{burdened: slow,
		worn: {"SpillwayCertificateExpiring"}})
	s.logs(burdened, "evicted a slow client")
	must(t, os.WriteFile(cert, []byte("broken"), 0o600))
	s.phase("its file is broken", map[string][]string{burdened: slow,
		worn: {"SpillwayCertificateExpiring", "SpillwayFileReloadFailed"}})
	s.says(worn, "[!]files: what was read at ", " is in use still: ")
	renew(time.Now().Add(48 * time.Hour))
	s.phase("it is renewed", map[string][]string{burdened: slow})
}

// neglect has a client open a watch of all config maps every few seconds, and read nothing of it.
func (s *stateWorld) neglect(name string) {
	ctx, token := s.t.Context(), s.token(name)
	var done sync.WaitGroup
	s.t.Cleanup(done.Wait)
	done.Go(func() {
		for ctx.Err() == nil {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.proxies[name].plain, "http://"))
			if err != nil {
				s.t.Error(err)
				return
			}
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			fmt.Fprintf(conn, "GET %s?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n",
				configMaps, token)
			head := make([]byte, len("HTTP/1.1 200"))
			if _, err := io.ReadFull(conn, head); err == nil && string(head) != "HTTP/1.1 200" {
				s.t.Errorf("a watch: %s", head)
			}
			select {
			case <-time.After(4 * time.Second):
			case <-ctx.Done():
			}
			_ = conn.Close()
		}
	})
}

// stateWorld is a control plane, proxies in front of it and a Prometheus that reads their metrics.
type stateWorld struct {
	t          *testing.T
	cp         *controlplane.ControlPlane
	binary     string
	proxies    map[string]*scrapedProxy
	prometheus string // its URL
	allowed    map[string][]string
}

// scrapedProxy is a proxy whose metrics are for users that the API server allows.
type scrapedProxy struct {
	*process.Proxy
	metrics, plain string // URLs
}

func (s *stateWorld) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.cp.Kubectl(s.t.Context(), args...)
	must(s.t, err)
	return strings.TrimSpace(out)
}

// newStateWorld starts a control plane with an account for each proxy.
func newStateWorld(t *testing.T, proxies ...string) *stateWorld {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Log: t.Output()})
	must(t, err)
	t.Cleanup(cp.Stop)
	s := &stateWorld{t: t, cp: cp, binary: process.BuildProxy(t), allowed: map[string][]string{},
		proxies: map[string]*scrapedProxy{}}
	s.grant(proxies)
	return s
}

// grant gives each proxy an account that may read all that it is to mirror but nodes, and
// Prometheus one that may read metrics.
func (s *stateWorld) grant(proxies []string) {
	s.t.Helper()
	s.kubectl("create", "clusterrole", "mirrors", "--verb=get,list,watch", "--resource=configmaps,services,pods,"+
		"apiservices.apiregistration.k8s.io,customresourcedefinitions.apiextensions.k8s.io")
	s.kubectl("create", "clusterrole", "metrics", "--verb=get", "--non-resource-url=/metrics")
	s.kubectl("create", "serviceaccount", "scraper")
	for _, account := range proxies {
		s.kubectl("create", "serviceaccount", account)
		s.kubectl("create", "clusterrolebinding", account, "--clusterrole=mirrors", "--serviceaccount=default:"+account)
		s.kubectl("create", "clusterrolebinding", account+"-reviews", "--clusterrole=system:auth-delegator",
			"--serviceaccount=default:"+account)
	}
	s.kubectl("create", "clusterrolebinding", "metrics", "--clusterrole=metrics", "--serviceaccount=default:scraper")
}

func (s *stateWorld) token(account string) string {
	s.t.Helper()
	return s.kubectl("create", "token", account)
}

// run starts a proxy under the account of its name, with metrics off loopback.
func (s *stateWorld) run(name, resources string, flags ...string) {
	s.t.Helper()
	kubeconfig := s.file(name+".kubeconfig", map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"clusters": []any{map[string]any{"name": "a", "cluster": map[string]any{"server": s.cp.URL(),
			"certificate-authority-data": s.cp.CA()}}},
		"users":    []any{map[string]any{"name": "a", "user": map[string]any{"token": s.token(name)}}},
		"contexts": []any{map[string]any{"name": "a", "context": map[string]any{"cluster": "a", "user": "a"}}}})
	p := &scrapedProxy{Proxy: process.LaunchProxy(s.t, s.binary, append([]string{"--kubeconfig=" + kubeconfig,
		"--resources=" + resources, "--metrics-listen=0.0.0.0:0", "--listen-tls=127.0.0.1:0",
		"--memory-budget=1Gi"}, flags...)...)}
	s.proxies[name] = p
	process.Awaiting(s.t, name+" to be ready", func(ctx context.Context) error {
		a := p.Log.Addresses()
		if a.Metrics == "" || a.Plain == "" {
			return fmt.Errorf("no addresses yet")
		}
		_, port, err := net.SplitHostPort(a.Metrics)
		if err != nil {
			return err
		}
		p.metrics, p.plain = "https://127.0.0.1:"+port, "http://"+a.Plain
		code, text, err := fetch(ctx, p.metrics+"/readyz", "")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, text)
		}
		return err
	})
}

// file writes a document in YAML, and returns where it is.
func (s *stateWorld) file(name string, document any) string {
	s.t.Helper()
	text, err := yaml.Marshal(document)
	must(s.t, err)
	path := filepath.Join(s.t.TempDir(), name)
	must(s.t, os.WriteFile(path, text, 0o600))
	return path
}

// startPrometheus has a Prometheus read all metrics, as the chart's ServiceMonitor has it, with the
// chart's rules.
func (s *stateWorld) startPrometheus() {
	s.t.Helper()
	rules, interval := string(ofChart(s.t, "alerts.yaml")), "15s"
	if !*real {
		interval = "4s" // a scrape takes two seconds while no review can be had
		rules = regexp.MustCompile(`for: (\d+)m`).ReplaceAllStringFunc(rules, func(text string) string {
			minutes, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(text, "for: "), "m"))
			must(s.t, err)
			return fmt.Sprintf("for: %ds", minutes*60/hurry)
		})
		rules = strings.ReplaceAll(rules, "_staleness_seconds) > 60", fmt.Sprintf("_staleness_seconds) > %d", 60/hurry))
	}
	dir := s.t.TempDir()
	must(s.t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600))
	must(s.t, os.WriteFile(filepath.Join(dir, "token"), []byte(s.token("scraper")), 0o600))
	var targets []any
	for name, p := range s.proxies {
		targets = append(targets, map[string]any{"targets": []string{strings.TrimPrefix(p.metrics, "https://")},
			"labels": map[string]string{"instance": name}})
	}
	config := s.file("prometheus.yaml", map[string]any{
		"global":     map[string]any{"scrape_interval": interval, "scrape_timeout": "4s", "evaluation_interval": "1s"},
		"rule_files": []string{filepath.Join(dir, "rules.yaml")},
		"scrape_configs": []any{map[string]any{"job_name": job, "scheme": "https", "static_configs": targets,
			"authorization": map[string]any{"credentials_file": filepath.Join(dir, "token")},
			"tls_config":    map[string]any{"insecure_skip_verify": true}}},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(s.t, err)
	address := listener.Addr().String()
	must(s.t, listener.Close())
	cmd := exec.Command(filepath.Join(process.Repository(s.t), "bin", "tools", "prometheus"), "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	child, err := process.Start(cmd, nil, s.t.Output())
	must(s.t, err)
	s.t.Cleanup(func() { child.Stop(time.Minute) })
	s.prometheus = "http://" + address
	process.Awaiting(s.t, "all to be scraped", func(ctx context.Context) error {
		_, text, err := fetch(ctx, s.prometheus+"/api/v1/query?query=count(up==1)", "")
		if err == nil && !strings.Contains(text, fmt.Sprintf(`"%d"]`, len(s.proxies))) {
			err = fmt.Errorf("%s", text)
		}
		return err
	})
}

// watch has a client watch config maps through a proxy, until the end.
func (s *stateWorld) watch(name string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.proxies[name].plain+configMaps+
		"?watch=1&resourceVersion=0", http.NoBody)
	must(s.t, err)
	r.Header.Set("Authorization", "Bearer "+s.token(well))
	a, err := http.DefaultClient.Do(r)
	must(s.t, err)
	if a.StatusCode != http.StatusOK {
		s.t.Fatal(a.Status)
	}
	s.t.Cleanup(func() { _ = a.Body.Close() })
	go func() { _, _ = io.Copy(io.Discard, a.Body) }()
}

// phase waits until exactly these alerts fire for each proxy. Until then only they, and those of
// the phase before, may.
func (s *stateWorld) phase(what string, want map[string][]string) {
	s.t.Helper()
	began := time.Now()
	for _, alerts := range want {
		slices.Sort(alerts)
	}
	patience := 2 * time.Minute
	if *real {
		patience = 15 * time.Minute
	}
	for {
		firing := s.firing()
		for name, alerts := range firing {
			for _, alert := range alerts {
				if !slices.Contains(want[name], alert) && !slices.Contains(s.allowed[name], alert) {
					s.t.Errorf("%s: %s fires for %s", what, alert, name)
				}
			}
		}
		if maps.EqualFunc(firing, want, slices.Equal) {
			s.t.Logf("%s: %v after %.0f s", what, want, time.Since(began).Seconds())
			s.allowed = want
			return
		}
		if time.Since(began) > patience {
			s.t.Fatalf("%s: %v fire, want %v", what, firing, want)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// firing are the alerts that fire, by proxy, each once.
func (s *stateWorld) firing() map[string][]string {
	s.t.Helper()
	all := map[string][]string{}
	for _, labels := range s.firingLabels() {
		if name := labels["instance"]; !slices.Contains(all[name], labels["alertname"]) {
			all[name] = append(all[name], labels["alertname"])
			slices.Sort(all[name])
		}
	}
	return all
}

// unsynced are the resources for which SpillwayMirrorNotSynced fires at a proxy.
func (s *stateWorld) unsynced(name string) (resources []string) {
	s.t.Helper()
	for _, labels := range s.firingLabels() {
		if labels["alertname"] == "SpillwayMirrorNotSynced" && labels["instance"] == name {
			resources = append(resources, labels["resource"])
		}
	}
	slices.Sort(resources)
	return resources
}

// firingLabels are the labels of each alert that fires.
func (s *stateWorld) firingLabels() (all []map[string]string) {
	s.t.Helper()
	_, text, err := fetch(s.t.Context(), s.prometheus+"/api/v1/alerts", "")
	must(s.t, err)
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	must(s.t, json.Unmarshal([]byte(text), &answer))
	for _, alert := range answer.Data.Alerts {
		if alert.State == "firing" {
			all = append(all, alert.Labels)
		}
	}
	return all
}

// says awaits texts in /readyz?verbose of a proxy.
func (s *stateWorld) says(name string, want ...string) {
	s.t.Helper()
	s.awaitTexts(name+" to say in /readyz?verbose", want, func(ctx context.Context) (string, error) {
		_, text, err := fetch(ctx, s.proxies[name].metrics+"/readyz?verbose", "")
		return text, err
	})
}

// logs awaits texts in the log of a proxy.
func (s *stateWorld) logs(name string, want ...string) {
	s.t.Helper()
	s.awaitTexts(name+" to log", want, func(context.Context) (string, error) {
		return string(s.proxies[name].Log.Text()), nil
	})
}

// checks awaits texts in what `spillway check` prints.
func (s *stateWorld) checks(name string, want ...string) {
	s.t.Helper()
	token := filepath.Join(s.t.TempDir(), "token")
	must(s.t, os.WriteFile(token, []byte(s.cp.Config(controlplane.Admin).BearerToken), 0o600))
	health := s.proxies[name].metrics
	s.awaitTexts("check of "+name+" to print", want, func(ctx context.Context) (string, error) {
		front := plainFront(s.t, health) // check verifies certificates, and the proxy's is self-signed
		out, _ := exec.CommandContext(ctx, s.binary, "check", "--server="+s.proxies[name].plain, "--token-file="+token,
			"--health="+front, "--resource=configmaps,nodes").Output() // it fails, as it should
		return string(out), nil
	})
}

func (s *stateWorld) awaitTexts(what string, want []string, read func(context.Context) (string, error)) {
	s.t.Helper()
	process.Awaiting(s.t, what, func(ctx context.Context) error {
		text, err := read(ctx)
		if err != nil {
			return err
		}
		for _, part := range want {
			if !strings.Contains(text, part) {
				return fmt.Errorf("%q is missing in %s", part, text)
			}
		}
		return nil
	})
}

// insecure trusts every certificate.
var insecure = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}}

// fetch sends a GET, with a token if there is one.
func fetch(ctx context.Context, url, token string) (code int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	a, err := insecure.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	return a.StatusCode, string(body), err
}

// plainFront serves what an HTTPS server serves, over plain HTTP.
func plainFront(t *testing.T, to string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, text, err := fetch(r.Context(), to+r.URL.RequestURI(), "")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
