package restart

import (
	"bufio"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/test/framework/process"
)

// kubelet is as much of one as logs and exec need at their far end: a log goes on while lines are
// sent to it, and a command sends back what it is sent.
type kubelet struct{ followers chan chan string } // one for each that follows the log: its lines

const kubeletNode, kubeletPod = "kubelet", "talker"

// newKubelet registers one, with a pod on it.
func newKubelet(t *testing.T, client kubernetes.Interface) *kubelet {
	t.Helper()
	k := &kubelet{followers: make(chan chan string)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", cat)
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.CloseClientConnections)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must(t, err)
	number, err := strconv.ParseInt(port, 10, 32)
	must(t, err)
	ctx := t.Context()
	node, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: kubeletNode}},
		metav1.CreateOptions{})
	must(t, err)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	_, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	must(t, err)
	pods := client.CoreV1().Pods(pulseNamespace)
	_, err = pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: kubeletPod},
		Spec:       corev1.PodSpec{NodeName: kubeletNode, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = pods.Patch(ctx, kubeletPod, types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`),
		metav1.PatchOptions{}, "status")
	must(t, err)
	return k
}

func (k *kubelet) logs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_ = http.NewResponseController(w).Flush() // fails when the client is gone, as what follows
	lines := make(chan string)
	select {
	case k.followers <- lines:
	case <-r.Context().Done():
		return
	}
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case line := <-lines:
			fmt.Fprintln(w, line)
		case <-r.Context().Done():
			return
		}
	}
}

func cat(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
		"%s\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n", r.Header.Get("Upgrade"))
	_, _ = io.Copy(conn, buffered)
}

// session is a log that is followed and a command that runs, through the proxy.
type session struct {
	lines chan string // to the log
	log   *bufio.Reader
	in    net.Conn
	out   *bufio.Reader
	said  int
}

// converse opens one.
func (k *kubelet) converse(t *testing.T, config *rest.Config) *session {
	t.Helper()
	path := config.Host + "/api/v1/namespaces/" + pulseNamespace + "/pods/" + kubeletPod
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path+"/log?follow=true", nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+config.BearerToken)
	response, err := http.DefaultClient.Do(r)
	must(t, err)
	t.Cleanup(func() { response.Body.Close() })
	at, err := url.Parse(path + "/exec?command=cat&stdin=true&stdout=true")
	must(t, err)
	conn, err := net.Dial("tcp", at.Host)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: "+
		"SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n",
		at.RequestURI(), at.Host, config.BearerToken)
	out := bufio.NewReader(conn)
	upgraded, err := http.ReadResponse(out, nil)
	must(t, err)
	if response.StatusCode != http.StatusOK || upgraded.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(upgraded.Body, 1<<10))
		t.Fatalf("logs: %s, exec: %s: %s", response.Status, upgraded.Status, text)
	}
	return &session{lines: <-k.followers, log: bufio.NewReader(response.Body), in: conn, out: out}
}

// check sends a line each way.
func (s *session) check(t *testing.T, when string) {
	t.Helper()
	s.said++
	line := fmt.Sprintln("line", s.said)
	s.lines <- strings.TrimSpace(line)
	fmt.Fprint(s.in, line)
	end := make(chan struct{})
	go func() {
		defer close(end)
		for what, from := range map[string]*bufio.Reader{"logs": s.log, "exec": s.out} {
			if got, err := from.ReadString('\n'); got != line {
				t.Errorf("%s, %s: %q, %v", when, what, got, err)
			}
		}
	}()
	process.Awaiting(t, "a line each way", func(ctx context.Context) error {
		select {
		case <-end:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
