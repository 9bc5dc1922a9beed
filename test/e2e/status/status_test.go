package status

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"spillway/internal/status"
	"spillway/test/framework/authcluster"
	"spillway/test/framework/process"
)

// hostile is what one of the clients calls itself.
const hostile = `<script>document.title="owned"</script>`

// all are the watches of clients that read.
var all = []watches{
	{"bob", "scheduler/v1.37.1 (linux/amd64) kubernetes/3b1c2f9", "HTTP/2", "", 40},
	{"alice", "curl/8.15.0", "HTTP/1.1", "", 60},
	{"bob", "reloader/v1.4.2 (linux/arm64)", "HTTP/2", "app%3Dweb", 30},
	{"bob", "reloader/v1.4.2 (linux/arm64)", "HTTP/2", "app%3Dnone", 30},
	{"alice", hostile, "HTTP/1.1", "app%3Dweb", 40},
}

// sleeper is the user agent of the one that reads nothing.
const sleeper = "backup/0.9"

// key is by what watches are counted.
func key(user, agent, protocol, labels string) string {
	return fmt.Sprintf("%s | %s | %s | %s", user, agent, protocol, labels)
}

// exactly succeeds if a report has these watches and no others.
func exactly(want []watches) func(*status.Report) error {
	return func(r *status.Report) error {
		counts, total := map[string]int{}, 0
		for _, of := range want {
			counts[key(of.who, of.agent, of.protocol, strings.ReplaceAll(of.selector, "%3D", "="))] += of.n
			total += of.n
		}
		ids := map[uint64]bool{}
		for _, one := range r.Watches.Items {
			ids[one.ID] = true
			counts[key(one.User, one.UserAgent, one.Protocol, one.LabelSelector)]--
			if one.Resource != "configmaps" || one.Namespace != namespace || one.Peer == "" || one.AgeSeconds < 0 ||
				one.Encoding != "json" {
				return fmt.Errorf("one is %+v", one)
			}
		}
		for what, n := range counts {
			if n != 0 {
				return fmt.Errorf("%d too few of %s", n, what)
			}
		}
		if r.Watches.Total != total || len(ids) != total {
			return fmt.Errorf("%d watches in all, %d of them told apart, want %d", r.Watches.Total, len(ids), total)
		}
		return nil
	}
}

// TestStatusShowsEveryWatch has 200 clients of two users watch over both protocols, and one more
// that reads nothing. The page shows exactly them, which of them lags, and in the end which was
// evicted.
func TestStatusShowsEveryWatch(t *testing.T) {
	w := newWorld(t, "--stall-timeout=30s")
	for _, of := range all {
		w.watch(of)
	}
	w.awaitReport("exactly the watches that there are, past their state", "limit=1000", func(r *status.Report) error {
		for _, one := range r.Watches.Items {
			if one.Phase != "live" {
				return fmt.Errorf("one is %+v", one)
			}
		}
		return exactly(all)(r)
	})

	const writes = 5
	for i := range writes {
		w.write("a", "web", 1000+i)
	}
	w.awaitReport("what was sent", "limit=1000", func(r *status.Report) error {
		for _, one := range r.Watches.Items {
			if sees := one.LabelSelector != "app=none"; one.LagEvents != 0 || one.Phase != "live" ||
				sees != (one.Bytes > writes*1000) || !sees && one.LastEvent != nil {
				return fmt.Errorf("one is %+v", one)
			}
		}
		if m := r.Resources; len(m) != 1 || m[0].Watches != 200 || m[0].Feeds != 5 || m[0].HistoryEvents == 0 {
			return fmt.Errorf("the mirror is %+v", m[0])
		}
		return nil
	})
	// What a watch reads from the log itself, as some do that were there before their feed, is not
	// accounted for: of the others the last event is known.
	w.awaitReport("the last event of a watch", "limit=1000", func(r *status.Report) error {
		for _, one := range r.Watches.Items {
			if one.LastEvent != nil {
				return nil
			}
		}
		w.write("a", "web", 1000)
		return fmt.Errorf("no feed has sent an event: %+v", r.Watches.Items[0])
	})
	report := w.awaitReport("rates", "limit=3&sort=-user", func(*status.Report) error { return nil })
	if len(report.Watches.Items) != 3 || report.Watches.Total != 200 || report.Watches.Items[0].User != "bob" ||
		report.Watches.Sort != "-user" {
		t.Errorf("a report of three shows %+v", report.Watches)
	}

	w.stall("carol", sleeper)
	stalled := append([]watches{{"carol", sleeper, "HTTP/1.1", "", 1}}, all...)
	for i := range 60 {
		w.write("b", "none", 100_000+i)
	}
	w.awaitReport("the watch that lags", "limit=1", func(r *status.Report) error {
		if one := r.Watches.Items[0]; one.User != "carol" || one.LagEvents == 0 || one.LagSeconds == 0 ||
			one.UnsentBytes == 0 || one.BlockedSeconds < 1 {
			return fmt.Errorf("the first by lag is %+v", one)
		}
		return nil
	})
	w.awaitReport("all of them", "limit=1000", exactly(stalled))
	if text := w.top(); !strings.Contains(text, "All 201 watches, by lag.") ||
		!regexp.MustCompile(`\ncarol .* `+sleeper+` +blocked `).MatchString(text) {
		t.Errorf("top prints\n%s", text)
	}
	t.Run("terminal", w.terminal)
	t.Run("browser", func(t *testing.T) { w.browse(t) })
	t.Run("strangers", w.strangers)

	w.awaitReport("the eviction", "limit=1000", func(r *status.Report) error {
		if r.Ended["slow_client_stalled"] != 1 || len(r.Evictions) != 1 {
			return fmt.Errorf("%v %v", r.Ended, r.Evictions)
		}
		if e := r.Evictions[0]; e.User != "carol" || e.UserAgent != sleeper || e.Resource != "configmaps" ||
			e.Namespace != namespace {
			return fmt.Errorf("evicted was %+v", e)
		}
		return exactly(all)(r)
	})
	if text := w.top("--sort=user"); !strings.Contains(text, "Evicted last:") {
		t.Errorf("top prints\n%s", text)
	}
}

// strangers are admitted by upstream's reviews, and by nothing else, where the page is not on
// loopback.
func (w *world) strangers(t *testing.T) {
	log := process.NewLog(t)
	command := exec.Command(w.binary, append(w.ProxyFlags(), "--resources=configmaps", "--metrics-listen=0.0.0.0:0")...)
	child, err := process.Start(command, nil, log.File)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		child.Stop(10 * time.Second)
		if t.Failed() {
			log.Show(t)
		}
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true}}
	address := ""
	process.Awaiting(t, "the proxy to serve", func(context.Context) error {
		_, port, err := net.SplitHostPort(log.Addresses().Metrics)
		address = "https://127.0.0.1:" + port
		return err
	})
	ask := func(who authcluster.User, format string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/statusz?format="+format, nil)
		if err != nil {
			t.Fatal(err)
		}
		if who.Header != nil {
			r.Header = who.Header
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	for _, c := range []struct {
		who  authcluster.User
		code int
		says string
	}{
		{w.people["operator"], http.StatusOK, "configmaps"},
		{w.people["alice"], http.StatusForbidden, `User \"alice\" cannot get path \"/statusz\"`},
		{authcluster.Anonymous(), http.StatusUnauthorized, "Unauthorized"},
		{authcluster.Bearer("forged", "forged"), http.StatusUnauthorized, "Unauthorized"},
	} {
		for _, format := range []string{"json", "html", "fragment"} {
			if code, body := ask(c.who, format); code != c.code || !strings.Contains(body, c.says) {
				t.Errorf("%s as %s: %d %s", c.who.Name, format, code, body)
			}
		}
	}

	token, ca := filepath.Join(t.TempDir(), "token"), presented(t, address)
	for name, want := range map[string]string{"operator": "There are no watches.", "alice": "403: "} {
		if err := os.WriteFile(token, []byte(strings.TrimPrefix(w.people[name].Header.Get("Authorization"), "Bearer ")),
			0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), w.binary, "top", "--once", "--address="+address, "--token-file="+token,
			"--ca-file="+ca).CombinedOutput()
		var failed *exec.ExitError
		if !strings.Contains(string(out), want) || errors.As(err, &failed) != (name != "operator") {
			t.Errorf("top as %s: %v %s", name, err, out)
		}
	}
}

// presented is a file with the certificate that a server presents.
func presented(t *testing.T, address string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(address, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	name := filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: conn.ConnectionState().PeerCertificates[0].Raw})
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
