package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"spillway/bench/rig"
)

const (
	headStreams = 100  // of a connection, as many as a client may have
	crumbs      = 250  // that a head repeats
	crumb       = 3950 // bytes of one, which is a byte on the wire once HPACK's table holds it
	// slower is how many times as long a client may wait for its LISTs and events while others send
	// such heads. What is below noise is as long.
	slower = 2
	noise  = 5 * time.Millisecond
)

// heads measures a normal client without and with connections that have no credentials and send
// heads of a megabyte in some bytes, again and again, and take nothing of the answers.
func heads(ctx context.Context, p *rig.Proxy, direct kubernetes.Interface, token string, r *rig.Report) error {
	client, err := newClient(ctx, &rest.Config{Host: p.TLSURL, QPS: -1, BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, direct)
	if err != nil {
		return err
	}
	defer client.stop()
	var all []comparison
	for _, connections := range []int{2, 8, 64} {
		name := "heads that grow, " + map[int]string{2: "2", 8: "8", 64: "64"}[connections] + " connections"
		without := client.measure(ctx, *storm)
		stop, err := startAttack(strings.TrimPrefix(p.TLSURL, "https://"), connections, grownShape)
		if err != nil {
			return err
		}
		with := client.measure(ctx, *storm)
		memory, err := p.Memory(ctx)
		stop()
		if err != nil {
			return err
		}
		r.Note(name+": without", "%s", without)
		r.Note(name+": with", "%s; %d MB resident", with, memory.RSS>>20)
		all = append(all, comparison{name: name, without: without, with: with})
	}
	checkServed(r, all)
	return nil
}

// newNormalUser makes a service account that may do everything, and returns its token.
func newNormalUser(ctx context.Context, direct kubernetes.Interface) (token string, err error) {
	token, err = rig.NewServiceAccount(ctx, direct, "default", "normal")
	if err != nil {
		return "", err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "normal"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "normal"}},
	}
	_, err = direct.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return token, err
}

// comparison is what a client waited for without an attack and with it.
type comparison struct {
	name          string
	without, with score
	upstream      *score // beside the same attack at kube-apiserver; nil: that was not measured
}

// checkServed checks that a client is served during each attack, and waits for no more than twice
// as long as without any, or than beside the same attack at kube-apiserver. All measurements
// without an attack are of one client and one proxy, so they count together: the 99th percentile of
// one of them is its fourth slowest request, and differs by half from one to the next.
func checkServed(r *rig.Report, all []comparison) {
	var without score
	for _, c := range all {
		without = without.and(c.without)
	}
	r.Note("without an attack, all together", "%s", without)
	for _, c := range all {
		with := c.with
		r.Check(with.failed == 0 && with.broken == 0 && len(with.list) > 0 && len(with.event) > 0,
			c.name+": the client is served", "%d of %d rounds, %d watches that ended", len(with.list),
			len(with.list)+with.failed, with.broken)
		events := func(s score) waits { return s.event }
		if c.upstream != nil { // beside kube-apiserver's own watch there is no other to compare it with
			events = func(s score) waits { return s.delay }
		}
		for _, w := range []struct {
			what string
			of   func(score) waits
		}{
			{"LISTs", func(s score) waits { return s.list }}, {"events", events},
			{"GETs that pass through", func(s score) waits { return s.passed }},
			{"writes", func(s score) waits { return s.write }},
		} {
			most := slower * max(w.of(without).percentile(99), noise)
			if c.upstream != nil {
				most = max(most, w.of(*c.upstream).percentile(99))
			}
			took := w.of(with).percentile(99)
			r.Check(took <= most, c.name+": "+w.what+" take no more than twice as long", "p99 %s, at most %s", took, most)
		}
	}
}

// grownHeads are the heads of a connection's first stream, and of the others.
var grownHeads = sync.OnceValue(func() (blocks [2][]byte) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := range blocks {
		block.Reset()
		fields := [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"},
			{":path", "/api/v1/nodes"}}
		for range crumbs {
			fields = append(fields, [2]string{"cookie", strings.Repeat("c", crumb)})
		}
		for _, f := range fields {
			_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // into memory
		}
		blocks[i] = bytes.Clone(block.Bytes())
	}
	return blocks
})

// attackers is the first argument of the process of the attack. It runs at the lowest priority: in
// the field its connections come from other machines, and here they are not to take the processor
// from the client that is measured.
const attackers = "attack"

// startAttack attacks an address by so many connections of a shape until stop is called.
func startAttack(address string, connections, shape int) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// #nosec G204 -- this program
	cmd := exec.Command("nice", "-n", "19", self, attackers, address, strconv.Itoa(connections),
		strconv.Itoa(shape))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := rig.Start(cmd); err != nil {
		return nil, err
	}
	return func() { _, _ = stdin.Close(), cmd.Wait() }, nil
}

// grownShape is the argument of the attack by heads that grow; other ones are places in shapes.
const grownShape = -1

// attackAll is the main function of the process of the attack. It returns when stdin ends.
func attackAll(address, connections, kind string) {
	n, err := strconv.Atoi(connections)
	if err != nil {
		panic(err)
	}
	which, err := strconv.Atoi(kind)
	if err != nil {
		panic(err)
	}
	persist := func(ctx context.Context, address string) {
		for ctx.Err() == nil {
			attack(ctx, address) // it is cut, and comes again
		}
	}
	if which != grownShape {
		persist = shapes[which].persist
	}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range n {
		all.Go(func() { persist(ctx, address) })
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	all.Wait()
}

// attack opens a connection and all its streams, and stays until it is cut: what it costs is
// encoded once, because it shares this machine with those that it attacks.
func attack(ctx context.Context, address string) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: tooLate},
		Config: &tls.Config{InsecureSkipVerify: true,
			NextProtos: []string{"h2"}}} // #nosec G402 -- the proxy's own certificate
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer c.Close()
	framer := http2.NewFramer(c, c)
	_, err = io.WriteString(c, http2.ClientPreface)
	if err != nil || framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) != nil {
		return
	}
	over := make(chan struct{})
	go func() { // what is said is read, and no answer is taken
		defer close(over)
		_, _ = io.Copy(io.Discard, c)
	}()
	blocks := grownHeads()
	for i := range uint32(headStreams) {
		if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: blocks[min(i, 1)],
			EndStream: true, EndHeaders: true}) != nil {
			break
		}
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
	_ = c.Close()
	<-over
}
