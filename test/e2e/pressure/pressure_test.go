// Package pressure has clients try to make a Spillway with little memory grow: by answers that they
// do not read, by selectors that no other client has, by resources that no client needs, and by
// requests that never end. None of them does anything that is forbidden. One user may have more
// than its share of the watches as long as enough are free.
package pressure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/fakeapiserver"
	"spillway/test/framework/process"
)

// budget is what the proxy may use.
const budget = 160 << 20

// How much there is to be had: of one resource that is mirrored, and of many that are not yet.
const (
	maps, mapSize     = 400, 25_000
	things, thingSize = 60, 2_000_000
)

// cluster is a small API server with much in it.
func cluster(t *testing.T) *fakeapiserver.Server {
	t.Helper()
	options := fakeapiserver.Options{ProofDelay: 10 * time.Millisecond}
	for i := range things {
		options.Resources = append(options.Resources, fakeapiserver.Resource{GVR: thing(i), Kind: fmt.Sprint("Thing", i),
			Namespaced: true, Custom: true})
	}
	up := fakeapiserver.New(options)
	t.Cleanup(up.Close)
	for i := range maps {
		up.Create(fakeapiserver.ConfigMaps, "n", fmt.Sprint("map-", i), fakeapiserver.WithPadding(mapSize))
	}
	const parts = 20
	for i := range things {
		for part := range parts {
			up.Create(thing(i), "n", fmt.Sprint("part-", part), fakeapiserver.WithPadding(thingSize/parts))
		}
	}
	return up
}

func thing(i int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprintf("things%02d", i)}
}

// pressureClients is clients of one proxy.
type pressureClients struct {
	t     *testing.T
	up    *fakeapiserver.Server
	proxy *process.Proxy
	conns []net.Conn
	mu    sync.Mutex
}

func newPressureClients(t *testing.T, binary string, args ...string) *pressureClients {
	t.Helper()
	up := cluster(t)
	args = append([]string{"--kubeconfig=" + kubeconfig(t, up), "--resources=configmaps,*", "--listen-identity=self",
		"--log-level=info"}, args...)
	c := &pressureClients{t: t, up: up, proxy: process.StartProxy(t, binary, args...)}
	t.Cleanup(func() {
		for _, conn := range c.conns {
			_ = conn.Close()
		}
	})
	return c
}

// kubeconfig is a file that leads to an API server without authentication.
func kubeconfig(t *testing.T, up *fakeapiserver.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test","contexts":[{"name":"test","context":{"cluster":"test"}}],
"clusters":[{"name":"test","cluster":{"server":%q}}]}`, up.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ask sends the beginning of a request on a connection of its own, of which nothing is ever read.
func (c *pressureClients) ask(text string) {
	dialer := net.Dialer{Timeout: process.Patience, Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		})
		if err == nil {
			err = failed
		}
		return err
	}}
	conn, err := dialer.Dial("tcp", strings.TrimPrefix(c.proxy.Plain, "http://"))
	if err != nil {
		c.t.Error(err)
		return
	}
	c.mu.Lock()
	c.conns = append(c.conns, conn)
	c.mu.Unlock()
	_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(conn, text) // a request that is refused early cannot be sent whole
}

// each sends many at a time.
func (c *pressureClients) each(n int, text func(i int) string) {
	var asking sync.WaitGroup
	room := make(chan struct{}, 64)
	for i := range n {
		room <- struct{}{}
		asking.Go(func() {
			c.ask(text(i))
			<-room
		})
	}
	asking.Wait()
}

func get(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }

// attack does all of it, and returns when the proxy has had to do with all of it.
func (c *pressureClients) attack() {
	const all = "/api/v1/configmaps"
	c.each(150, func(i int) string { return get(fmt.Sprintf("%s?resourceVersion=0&labelSelector=a!=%d", all, i)) })
	c.each(150, func(i int) string {
		return get(fmt.Sprintf("%s?watch=1&resourceVersion=0&labelSelector=b!=%d", all, i))
	})
	c.each(600, func(i int) string {
		return get(fmt.Sprintf("%s?watch=1&resourceVersion=%d&labelSelector=c!=%d", all, c.up.Revision(), i))
	})
	c.each(150, func(i int) string {
		const size = 1 << 20
		head := fmt.Sprintf("POST /api/v1/namespaces/n/secrets HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
			"application/json\r\nContent-Length: %d\r\n\r\n", size)
		return head + strings.Repeat(" ", size-1)
	})
	var asking sync.WaitGroup
	for i := range things {
		asking.Go(func() { // asking.Go(func() { // a client that does read: it must not be refused
			response, err := http.Get(fmt.Sprintf("%s/apis/example.com/v1/%s?resourceVersion=0", c.proxy.Plain,
				thing(i).Resource))
			if err != nil {
				c.t.Error(err)
				return
			}
			defer response.Body.Close()
			if n, err := io.Copy(io.Discard, response.Body); response.StatusCode == http.StatusOK &&
				(err != nil || n < thingSize) {
				c.t.Errorf("thing %d: %d bytes, %v", i, n, err)
			}
		})
	}
	for i := range 200 { // what happens meanwhile is for all that watch
		c.up.Update(fakeapiserver.ConfigMaps, "n", fmt.Sprint("map-", i), fakeapiserver.WithPadding(mapSize+1))
		time.Sleep(5 * time.Millisecond)
	}
	asking.Wait()
}

// served fails unless an ordinary client is served.
func (c *pressureClients) served() {
	c.t.Helper()
	process.Awaiting(c.t, "an ordinary client", func(ctx context.Context) error {
		return process.ExpectOK(ctx, c.proxy.Plain+"/api/v1/namespaces/n/configmaps/map-1?resourceVersion=0")
	})
	response, err := http.Get(c.proxy.Plain + "/api/v1/namespaces/n/configmaps?limit=3")
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	var list struct{ Items []json.RawMessage }
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil || len(list.Items) != 3 {
		c.t.Errorf("a list of three has %d items, %v", len(list.Items), err)
	}
}

// TestMemoryStaysWithinBudgetUnderPressure does the same to a proxy with a budget and to one
// without, which shows that there was something to survive.
func TestMemoryStaysWithinBudgetUnderPressure(t *testing.T) {
	binary := process.BuildProxy(t)
	t.Run("with a budget", func(t *testing.T) {
		c := newPressureClients(t, binary, fmt.Sprintf("--memory-budget=%d", budget))
		c.attack()
		c.served()
		most := c.proxy.MostResident(t)
		t.Logf("%d MiB at most; steps taken: %d; resources refused: %d", most>>20,
			process.Metric(t, c.proxy.Metrics, "spillway_memory_degradations_total"),
			process.Metric(t, c.proxy.Metrics, "spillway_mirror_memory_exceeded_total"))
		if most > budget*5/4 { // Go's limit is a soft one: how far it is passed for a moment depends on the machine
			t.Errorf("it took %d MiB of %d", most>>20, budget>>20)
		}
		for _, step := range []string{"derived", "history", "evict"} {
			if process.Metric(t, c.proxy.Metrics, "spillway_memory_degradations_total{step="+strconv.Quote(step)) == 0 {
				t.Errorf("step %s was not taken", step)
			}
		}
		if n := process.Metric(t, c.proxy.Metrics, "spillway_panics_total"); n != 0 {
			t.Errorf("%d panics", n)
		}
	})
	t.Run("without", func(t *testing.T) {
		c := newPressureClients(t, binary, "--memory-budget=1Ti")
		c.attack()
		c.served()
		if most := c.proxy.MostResident(t); most < 2*budget {
			t.Errorf("it took %d MiB: that is nothing to survive", most>>20)
		} else {
			t.Logf("%d MiB at most", most>>20)
		}
	})
}
