package permissions

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
	"spillway/test/framework/wire"
)

// mirrored is what the proxy keeps in memory: Secrets, too, because they are named.
const mirrored = "configmaps,pods,secrets,nodes,namespaces,deployments.apps,gems.v1." + gemGroup

// world is a cluster with users and objects, and the proxy in front of it.
type world struct {
	*authcluster.Cluster
	binary string
	proxy  *process.Proxy
	lender *process.Proxy // impersonates the users of certificates
	people []identity
	tally  *exchange.Tally
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Cluster: authcluster.Start(t, authcluster.Options{Users: tokenUsers()}), binary: process.BuildProxy(t),
		tally: exchange.NewTally()}
	makeObjects(t, w.Cluster)
	w.people = populate(t, w.Cluster)
	impersonator := w.User("impersonator")
	w.Grant(t, impersonator, authcluster.Everywhere(authcluster.Rule("impersonate", "", "users,groups,serviceaccounts"),
		authcluster.Rule("impersonate", "authentication.k8s.io", "*")))
	w.Settle(t)
	if err := controlplane.WriteKubeconfig(w.Kubeconfig("impersonator"), w.Config("impersonator")); err != nil {
		t.Fatal(err)
	}
	flags := append(w.ProxyFlags(), "--resources="+mirrored)
	w.proxy = process.StartProxy(t, w.binary, flags...)
	w.lender = process.StartProxy(t, w.binary, append(flags, "--impersonate-client-certs", "--impersonation-kubeconfig="+
		w.Kubeconfig("impersonator"))...)
	return w
}

// TestPermissions is the matrix, and what belongs to the same world.
func TestPermissions(t *testing.T) {
	w := newWorld(t)
	t.Run("crafted", w.crafted)
	t.Run("on demand", w.onDemand)
	t.Run("HTTP2", w.overHTTP2)
	t.Run("matrix", w.matrix)
}

// counts of cells.
type counts struct {
	mu                                  sync.Mutex
	cells, refused, memory, own, passed int
	stranded, early                     map[string]int // by target
}

// matrix sends the requests of every user both ways.
func (w *world) matrix(t *testing.T) {
	t.Parallel()
	columns := targets()
	if testing.Short() {
		columns = slices.DeleteFunc(columns, func(c target) bool { return c.more })
	}
	n := counts{stranded: map[string]int{}, early: map[string]int{}}
	start := time.Now()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(24)
	for _, p := range w.people {
		for _, lane := range lanes(columns) {
			group.Go(func() error {
				w.row(ctx, t, &n, p, lane)
				return nil
			})
			if p.unforwardable {
				group.Go(func() error {
					w.row(ctx, t, &n, p.lent(), lane)
					return nil
				})
			}
		}
	}
	_ = group.Wait() // what went wrong is noted
	t.Logf("%d people, %d requests of each, %d cells in %.0f s: %d answered 401 or 403; %d from memory, %d refused by "+
		"the proxy itself, %d passed through, %d not forwardable",
		len(w.people), len(columns), n.cells, time.Since(start).Seconds(), n.refused, n.memory, n.own, n.passed,
		n.strandedCells())
	if len(w.people) < 40 || n.refused < n.cells/4 || n.refused > n.cells*9/10 || n.memory+n.own < n.cells/3 {
		t.Error("the matrix is lopsided")
	}
	n.judgeStranded(t, columns)
}

// lanes are the requests that follow each other on a connection. Watches wait, so they have some to
// themselves.
func lanes(columns []target) [][]target {
	const watching = 3
	all := make([][]target, 1+watching)
	next := 0
	for _, c := range columns {
		if c.watches() {
			next++
			all[1+next%watching] = append(all[1+next%watching], c)
		} else {
			all[0] = append(all[0], c)
		}
	}
	return all
}

// row sends the requests of every column as one user, both ways at once.
func (w *world) row(ctx context.Context, t *testing.T, n *counts, p identity, columns []target) {
	proxy := w.proxy
	if p.byLender {
		proxy = w.lender
	}
	direct, proxied := &caller{to: w.Direct(p.User), who: p.User}, &caller{to: authcluster.Through(proxy, p.User),
		who: p.User}
	for _, column := range columns {
		for try := 1; ; try++ {
			again, err := w.cell(ctx, n, p, column, direct, proxied)
			if again && try < 5 {
				continue
			}
			if err != nil {
				t.Errorf("%s: %s: %v", p.Name, column, err)
			}
			break
		}
	}
	for _, c := range []*caller{direct, proxied} {
		if err := c.leave(); err != nil {
			t.Errorf("%s: at the end of a connection: %v", p.Name, err)
		}
	}
}

// cell sends one request both ways. It reports again if upstream itself had not the time to answer,
// or answers with the time.
func (w *world) cell(ctx context.Context, n *counts, p identity, column target, direct, proxied *caller) (again bool,
	err error) {
	var answers [2]*exchange.Answer
	var received [2][]byte
	group, ctx := errgroup.WithContext(ctx)
	for i, c := range []*caller{direct, proxied} {
		group.Go(func() (err error) {
			answers[i], received[i], err = c.ask(ctx, column)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return false, err
	}
	for i, a := range answers {
		if a.Status >= http.StatusBadRequest && bytes.Contains(received[i], []byte(canary)) {
			return false, fmt.Errorf("refused with %d, and shown an object: %q", a.Status, received[i])
		}
	}
	if p.never != nil {
		if err := p.never(received[1]); err != nil {
			return false, err
		}
	}
	if p.strandedBy(column, answers[1]) {
		return false, n.strand(p, column)
	}
	sameFlow(answers[0], answers[1])
	result := exchange.Compare(w.tally, column.Request, answers[0], answers[1])
	if len(result.Problems) > 0 && (column.clocked || result.OutOfTime()) {
		again = true
	}
	if len(result.Problems) > 0 {
		return again, fmt.Errorf("%s", strings.Join(result.Problems, "\n"))
	}
	n.note(result)
	return false, nil
}

// sameFlow makes two answers equal in what flow control says of them, if upstream's had a part in
// both: a LIST that several share is the proxy's own there.
func sameFlow(direct, proxied *exchange.Answer) {
	for _, name := range []string{exchange.FlowControl, "X-Kubernetes-Pf-Prioritylevel-Uid"} {
		if direct.Header.Get(name) != "" && proxied.Header.Get(name) != "" {
			proxied.Header.Set(name, direct.Header.Get(name))
		}
	}
}

func (n *counts) note(c *exchange.Comparison) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cells++
	if c.Direct.Status == http.StatusUnauthorized || c.Direct.Status == http.StatusForbidden {
		n.refused++
	}
	switch c.By() {
	case exchange.Memory:
		n.memory++
	case exchange.Refusal:
		n.own++
	default:
		n.passed++
	}
}

// caller sends requests as one user, on one connection for as long as it lasts.
type caller struct {
	to   wire.Address
	who  authcluster.User
	conn *wire.Conn
}

func (c *caller) ask(ctx context.Context, what target) (*exchange.Answer, []byte, error) {
	if c.conn == nil {
		var err error
		if c.conn, err = wire.Dial(ctx, c.to); err != nil {
			return nil, nil, err
		}
	}
	var enough func([]byte) bool
	if what.until != nil {
		enough = func(body []byte) bool { return slices.ContainsFunc(exchange.SplitEvents(body), what.until) }
	}
	a, received, err := c.conn.AskUntil(what.Method, c.request(what.Request), enough)
	if err != nil || enough != nil || a.Header.Get("Connection") == "close" {
		c.conn.Close()
		c.conn = nil
	}
	return a, received, err
}

// leave closes the connection, on which nothing may have come after the last answer.
func (c *caller) leave() error {
	if c.conn == nil {
		return nil
	}
	defer c.conn.Close()
	return c.conn.Silent(200 * time.Millisecond)
}

// request is what goes over the wire.
func (c *caller) request(r exchange.Request) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n", r.Method, r.Target, c.to.Host, exchange.UserAgent)
	for name, values := range c.who.Header {
		for _, value := range values {
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	for name, value := range r.Header {
		fmt.Fprintf(&b, "%s: %s\r\n", name, value)
	}
	if r.Body != "" {
		b.WriteString("Content-Length: " + strconv.Itoa(len(r.Body)) + "\r\n")
	}
	b.WriteString("\r\n" + r.Body)
	return b.Bytes()
}
