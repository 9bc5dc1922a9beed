// Package http2 runs h2spec, which breaks every rule of HTTP/2 in turn, against a kube-apiserver
// and Spillway.
package http2

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
	"golang.org/x/sync/errgroup"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const (
	// timeout is how long h2spec waits for what a server must do. A GOAWAY is one second before the
	// end of the connection.
	timeout = 3 * time.Second
	// atATime is how many cases are tried of a server: most of them wait.
	atATime = 8
	// tries are those of a case, on a machine that is busy: a case fails if it always does.
	tries = 3
)

// fewest is fewer cases than h2spec has: should they not be found, nothing is shown.
const fewest = 130

// Spillway keeps every rule that a kube-apiserver keeps. Those that both break are named in the
// log.
func TestH2specFailsOnlyWhereKubeAPIServerFails(t *testing.T) {
	t.Parallel()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	proxy := process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+cp.Kubeconfig(controlplane.Admin),
		"--resources=configmaps",
		"--listen=", "--listen-tls=127.0.0.1:0", "--insecure-allow-all")
	var servers sync.WaitGroup
	var direct, proxied map[string]error
	servers.Go(func() { direct = judge(t, cp.URL()) })
	servers.Go(func() { proxied = judge(t, proxy.TLS) })
	servers.Wait()

	if len(proxied) < fewest || len(direct) != len(proxied) {
		t.Fatalf("%d cases of kube-apiserver, %d of Spillway, want at least %d", len(direct), len(proxied), fewest)
	}
	var both, apiserver []string
	for name, err := range proxied {
		switch {
		case err != nil && direct[name] == nil:
			t.Errorf("only Spillway fails: %s: %v", name, err)
		case err != nil:
			both = append(both, name)
		case direct[name] != nil:
			apiserver = append(apiserver, name)
		}
	}
	t.Logf("%d cases", len(proxied))
	for what, names := range map[string][]string{"both fail": both, "only kube-apiserver fails": apiserver} {
		slices.Sort(names)
		t.Logf("%s %d:\n%s", what, len(names), strings.Join(names, "\n"))
	}
}

// judge tries all cases of a server, and returns what each found, nil if nothing.
func judge(t *testing.T, server string) map[string]error {
	c, err := configuration(server)
	if err != nil {
		t.Error(err)
		return nil
	}
	var mu sync.Mutex
	found := map[string]error{}
	var cases errgroup.Group
	cases.SetLimit(atATime)
	var walk func(g *spec.TestGroup)
	walk = func(g *spec.TestGroup) {
		for i, one := range slices.Concat(g.Tests, g.StrictTests) {
			name := fmt.Sprintf("%s/%d %s", g.ID(), i+1, one.Desc)
			cases.Go(func() error {
				err := try(c, one)
				mu.Lock()
				defer mu.Unlock()
				found[name] = err
				return nil
			})
		}
		for _, sub := range g.Groups {
			walk(sub)
		}
	}
	for _, g := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		walk(g)
	}
	_ = cases.Wait() // whose functions keep their errors
	return found
}

func configuration(server string) (*config.Config, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	return &config.Config{Host: host, Port: number, Path: "/version", Timeout: timeout, MaxHeaderLen: 4000, TLS: true,
		Insecure: true, Strict: true}, nil
}

// try tries a case on a connection of its own. What the case does not require of a server is not
// held against it.
func try(c *config.Config, one *spec.TestCase) error {
	var err error
	for range tries {
		var conn *spec.Conn
		if conn, err = spec.Dial(c); err != nil {
			continue
		}
		err = one.Run(c, conn)
		_ = conn.Close()
		if err == nil || err == spec.ErrSkipped {
			return nil
		}
	}
	return err
}
