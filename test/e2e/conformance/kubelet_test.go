package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// kubelet is as much of one as it takes for logs and exec to have a peer at their far end.
type kubelet struct {
	*httptest.Server
	followers chan chan string // one per follower of a log: its lines; closed at the log's end
}

func newKubelet(t *testing.T) *kubelet {
	k := &kubelet{followers: make(chan chan string)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	k.Server = httptest.NewTLSServer(mux)
	t.Cleanup(k.CloseClientConnections)
	return k
}

// logs writes lines one by one, until the channel of its follower is closed.
func (k *kubelet) logs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "log of %s/%s\n", r.PathValue("pod"), r.PathValue("container"))
	if r.URL.Query().Get("follow") != "true" {
		return
	}
	flusher := http.NewResponseController(w)
	_ = flusher.Flush() // fails when the client is gone, as the next write does
	lines := make(chan string)
	select {
	case k.followers <- lines:
	case <-r.Context().Done():
		return
	}
	for line := range lines {
		fmt.Fprintln(w, line)
		_ = flusher.Flush()
	}
}

// exec sends back in upper case what it is sent, and ends well.
func (k *kubelet) exec(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"v5.channel.k8s.io", "v4.channel.k8s.io"}); err != nil {
		return // it has been answered
	}
	streams := make(chan httpstream.Stream, 8)
	c := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		streams <- s
		return nil
	})
	if c == nil {
		return // it has been answered
	}
	defer c.Close()
	byType := map[string]httpstream.Stream{}
	for len(byType) < wantedStreams(r.URL.Query()) {
		select {
		case s := <-streams:
			byType[s.Headers().Get("streamType")] = s
		case <-c.CloseChan():
			return
		}
	}
	out := byType["stdout"]
	fmt.Fprintln(out, "executing", strings.Join(r.URL.Query()["command"], " "))
	if in := byType["stdin"]; in != nil {
		text, err := io.ReadAll(in)
		if err != nil {
			return
		}
		_, _ = out.Write(bytes.ToUpper(text)) // fails when the client is gone
	}
	fmt.Fprint(byType["error"], `{"metadata":{},"status":"Success"}`)
	for _, s := range byType {
		_ = s.Close() // which only says that nothing more comes
	}
	<-c.CloseChan() // the other side hangs up once it has everything
}

// wantedStreams is how many streams an exec will open: one for its outcome, and those that its
// query names.
func wantedStreams(query url.Values) int {
	n := 1
	for _, name := range []string{"input", "output", "error", "tty"} {
		if v := query.Get(name); v == "1" || v == "true" {
			n++
		}
	}
	return n
}

// testKubelet puts a kubelet behind the API server and reaches it both ways: streams flow while
// they are open, and upgrades are carried through (W-119's kin, D13).
func (s *suite) testKubelet(t *testing.T) {
	k := newKubelet(t)
	s.makeKubeletNode(t, k)
	t.Run("logs", func(t *testing.T) { s.testLogs(t) })
	t.Run("logs -f", func(t *testing.T) { s.testFollow(t, k) })
	t.Run("exec", func(t *testing.T) { s.testExec(t) })
}

// makeKubeletNode registers the kubelet, with a pod on it.
func (s *suite) makeKubeletNode(t *testing.T, k *kubelet) {
	t.Helper()
	host, port, err := net.SplitHostPort(k.Listener.Addr().String())
	must(t, err)
	number, err := strconv.Atoi(port)
	must(t, err)
	node, err := s.client.CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kubelet"}}, metav1.CreateOptions{})
	must(t, err)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	_, err = s.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	must(t, err)
	_, err = s.client.CoreV1().Pods("c1").Create(t.Context(), pod("talker", "kubelet"), metav1.CreateOptions{})
	must(t, err)
	_, err = s.client.CoreV1().Pods("c1").Patch(t.Context(), "talker", mergeType, []byte(`{"status":{"phase":"Running"}}`),
		metav1.PatchOptions{}, "status")
	must(t, err)
}

func (s *suite) testLogs(t *testing.T) {
	s.run(t, s.plain, get("log", "W-97", "/api/v1/namespaces/c1/pods/talker/log", upstream, 0))
	s.run(t, s.secure, get("log", "W-97", "/api/v1/namespaces/c1/pods/talker/log", upstream, 0))
	s.run(t, s.plain, get("node proxy", "W-97", "/api/v1/nodes/kubelet/proxy/healthz", upstream, anyStatus))
}

// testFollow follows a log: each line must come through before the next is written.
func (s *suite) testFollow(t *testing.T, k *kubelet) {
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	for _, e := range s.sides() {
		out := &processOutput{}
		p, err := s.cp.StartKubectl(controlplane.Streams{Out: out, Err: out}, "logs", "-f", "-n", "c1", "talker",
			"--kubeconfig="+e.kubeconfig(t))
		must(t, err)
		t.Cleanup(p.Kill)
		var lines chan string
		select {
		case lines = <-k.followers:
		case <-ctx.Done():
			t.Fatalf("%s: no client follows the log: %s", e.Name, out.text())
		}
		want := "log of talker/main\n"
		for i := range 5 {
			lines <- fmt.Sprint("line ", i)
			want += fmt.Sprintln("line", i)
			process.Awaiting(t, e.Name+": a line of the log", func(context.Context) error {
				if got := out.text(); got != want {
					return fmt.Errorf("%q", got)
				}
				return nil
			})
		}
		close(lines)
		if err := p.Wait(); err != nil {
			t.Errorf("%s: kubectl logs: %v", e.Name, err)
		}
		s.show(t, "W-97", upstream)
	}
}

// testExec runs a command, with and without input, over what kubectl upgrades to.
func (s *suite) testExec(t *testing.T) {
	for _, c := range []struct{ input, line string }{
		{"", "exec -n c1 talker -- echo hello"},
		{"many words\nto shout\n", "exec -i -n c1 talker -- shout"},
		{strings.Repeat("a long story ", 20000), "exec -i -n c1 talker -- shout"},
	} {
		want := s.kubectl(t, s.direct, c.input, strings.Fields(c.line)...)
		if want.failed || !strings.Contains(want.out, strings.ToUpper(c.input)) {
			t.Fatalf("kubectl %s: %t %s %s", c.line, want.failed, exchange.Clip([]byte(want.out)), want.err)
		}
		for _, e := range s.sides()[1:] {
			if got := s.kubectl(t, e, c.input, strings.Fields(c.line)...); got != want {
				t.Errorf("%s: kubectl %s: %s %s", e.Name, c.line, exchange.Clip([]byte(got.out)), got.err)
				continue
			}
			s.show(t, "W-119", upstream)
		}
	}
}
