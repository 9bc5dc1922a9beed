package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/authcluster"
	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
	"spillway/test/framework/wire"
)

// lender may impersonate, and nothing else.
const lender controlplane.User = "lender"

const whoami = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`

// protocols are how a request may come.
const (
	overHTTP1     = "HTTP/1.1"
	overHTTP2     = "HTTP/2"
	overWebSocket = "WebSocket"
)

// question is what each identity requests.
type question struct {
	proxyRoute
	protocol string
	memory   bool // answered from memory where the user is allowed
}

// questions are the columns of the matrix.
func questions() []question {
	body := []string{"Content-Type: application/json"}
	webSocket := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Origin: http://localhost"}
	var all []question
	for _, protocol := range []string{overHTTP1, overHTTP2} {
		for _, v := range []proxyRoute{
			{name: "memory", method: "GET", path: "/api/v1/namespaces/default/configmaps?resourceVersion=0"},
			{name: "read", method: "GET", path: "/api/v1/namespaces/default/services"},
			{name: "write", method: "POST", path: "/api/v1/namespaces/default/configmaps?dryRun=All", lines: body, body: object},
			{name: "whoami", method: "POST", path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", lines: body,
				body: whoami},
		} {
			all = append(all, question{proxyRoute: v, protocol: protocol, memory: v.name == "memory"})
		}
	}
	all = append(
		all,
		question{proxyRoute: proxyRoute{name: "log", method: "GET", path: "/api/v1/namespaces/default/pods/p/log"},
			protocol: overHTTP1},
	)
	for name, path := range map[string]string{
		"exec":       "/api/v1/namespaces/default/pods/p/exec?command=x&stdout=1",
		"log":        "/api/v1/namespaces/default/pods/p/log?follow=1",
		"node proxy": "/api/v1/nodes/n/proxy/healthz",
		"watch":      "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0&timeoutSeconds=30",
	} {
		all = append(all, question{proxyRoute: proxyRoute{name: name, method: "GET", path: path, lines: webSocket},
			protocol: overWebSocket, memory: name == "watch"})
	}
	return all
}

// cell is one question of one identity, both ways.
type cell struct {
	who      hostile
	question question
	asked    [2]exchangeResult // directly and through the proxy
}

func (c *cell) String() string {
	return fmt.Sprintf("%v: %s over %s", c.who, c.question.name, c.question.protocol)
}

// exchangeResult is one request and its answer.
type exchangeResult struct {
	mark   string
	status int
	memory bool // the answer is the proxy's own
	body   []byte
}

// caller sends requests to one place under one identity.
type caller struct {
	to   wire.Address
	who  hostile
	conn *wire.Conn
	over *http.Transport
}

func newCaller(to wire.Address, who hostile) *caller {
	over := &http.Transport{TLSClientConfig: to.TLS.Clone(), DisableCompression: true, Protocols: new(http.Protocols)}
	over.Protocols.SetHTTP2(true)
	return &caller{to: to, who: who, over: over}
}

func (c *caller) close() {
	c.drop()
	c.over.CloseIdleConnections()
}

func (c *caller) drop() {
	if c.conn != nil {
		c.conn.Close()
	}
	c.conn = nil
}

func (c *caller) ask(ctx context.Context, q question, mark string) (a exchangeResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var status int
	var header http.Header
	var body []byte
	if q.protocol == overHTTP2 {
		status, header, body, err = c.askHTTP2(ctx, q, mark)
	} else {
		status, header, body, err = c.askHTTP1(ctx, q, mark)
	}
	return exchangeResult{mark: mark, status: status, memory: header.Get(exchange.FlowControl) == "", body: body}, err
}

// askHTTP1 keeps its connection for the next request if it may.
func (c *caller) askHTTP1(ctx context.Context, q question, mark string) (int, http.Header, []byte, error) {
	if c.conn == nil {
		conn, err := wire.Dial(ctx, c.to)
		if err != nil {
			return 0, nil, nil, err
		}
		c.conn = conn
	}
	var lines []string
	for _, f := range c.who.fields {
		lines = append(lines, f.name+": "+f.value)
	}
	a, _, err := c.conn.Ask(q.method, q.request(c.to.Host, mark, lines, nil, ""))
	if err != nil {
		c.drop()
		return 0, nil, nil, err
	}
	if a.Status == http.StatusSwitchingProtocols || q.protocol == overWebSocket || a.Status == http.StatusBadRequest ||
		a.Header.Get("Connection") == "close" {
		c.drop()
	}
	return a.Status, a.Header, a.Body, nil
}

func (c *caller) askHTTP2(ctx context.Context, q question, mark string) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, q.method, "https://"+c.to.Host+q.target(mark), strings.NewReader(q.body))
	if err != nil {
		return 0, nil, nil, err
	}
	for _, line := range q.lines {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	for _, f := range c.who.fields {
		req.Header.Add(f.name, f.value)
	}
	response, err := c.over.RoundTrip(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.ProtoMajor != 2 {
		err = fmt.Errorf("answered in %s", response.Proto)
	}
	return response.StatusCode, response.Header, body, err
}

// stage is a cluster with clients of hostile identities, and a proxy in front of it that
// impersonates them.
type stage struct {
	*authcluster.Cluster
	proxy *process.Proxy
	front authcluster.User
	marks atomic.Int64
}

func newStage(t *testing.T, all []hostile) *stage {
	t.Helper()
	s := &stage{Cluster: authcluster.Start(t, authcluster.Options{Users: map[controlplane.User][]string{lender: nil}})}
	s.Grant(t, s.User(lender), authcluster.Everywhere(authcluster.Rule("impersonate", "", "users,groups,serviceaccounts"),
		authcluster.Rule("impersonate", "authentication.k8s.io", "*")))
	create := metav1.CreateOptions{}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "entitled"}, Subjects: bindings(all),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	if _, err := s.Admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, create); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, create); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := s.Admin.CoreV1().Pods("default").Create(t.Context(), pod, create); err != nil {
		t.Fatal(err)
	}
	s.Settle(t)
	if err := controlplane.WriteKubeconfig(s.Kubeconfig(lender), s.Config(lender)); err != nil {
		t.Fatal(err)
	}
	flags := append(s.ProxyFlags(), "--resources=configmaps", "--impersonate-client-certs",
		"--impersonation-kubeconfig="+s.Kubeconfig(lender))
	s.proxy = process.StartProxy(t, process.BuildProxy(t), flags...)
	s.front = s.Vouched(t, authcluster.FrontName, mallory)
	s.awaitMemory(t)
	return s
}

// awaitMemory waits until the proxy answers from memory.
func (s *stage) awaitMemory(t *testing.T) {
	t.Helper()
	c := newCaller(authcluster.Through(s.proxy, s.front), byFront(field{"X-Remote-User", root}))
	defer c.close()
	process.Awaiting(t, "answers from memory", func(ctx context.Context) error {
		a, err := c.ask(ctx, questions()[0], "none")
		if err == nil && (a.status != http.StatusOK || !a.memory) {
			err = fmt.Errorf("answered %d: %.200s", a.status, a.body)
		}
		return err
	})
}

// person has the credentials of an identity.
func (s *stage) person(t *testing.T, who hostile) authcluster.User {
	if who.subject == nil {
		return s.front
	}
	pair, err := s.Clients.IssueSubject(*who.subject)
	if err != nil {
		t.Fatalf("%v: %v", who, err)
	}
	return authcluster.WithCertificate(t, who.name, pair)
}

// TestHostileIdentities sends the same directly and through the proxy, as identities whose bytes
// HTTP may change: what the API server refuses is refused, no other identity ever arrives, and what
// a header carries works as directly.
func TestHostileIdentities(t *testing.T) {
	all := people()
	s := newStage(t, all)
	start := time.Now()
	var cells []*cell
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for _, who := range all {
		p := s.person(t, who)
		var row []*cell
		for _, q := range questions() {
			if q.protocol != overHTTP2 || !who.malformed() {
				row = append(row, &cell{who: who, question: q})
			}
		}
		cells = append(cells, row...)
		group.Go(func() error {
			s.askRow(ctx, t, row, s.Direct(p), authcluster.Through(s.proxy, p))
			return nil
		})
	}
	_ = group.Wait() // what went wrong is noted
	t.Logf("%d identities, %d cells, asked in %.0f s", len(all), len(cells), time.Since(start).Seconds())
	if len(all) < 200 || len(cells) < 2000 {
		t.Error("too few requests were sent")
	}
	s.judge(t, cells)
}

// askRow sends the requests of one identity.
func (s *stage) askRow(ctx context.Context, t *testing.T, row []*cell, to ...wire.Address) {
	for way, address := range to {
		c := newCaller(address, row[0].who)
		for _, one := range row {
			var err error
			if one.asked[way], err = c.ask(ctx, one.question, fmt.Sprintf("m%dm", s.marks.Add(1))); err != nil {
				t.Errorf("%v: %v", one, err)
			}
		}
		c.close()
	}
}

// user is the identity that the API server found in a review of itself.
func (a exchangeResult) user() (string, error) {
	var review authenticationv1.SelfSubjectReview
	if err := json.NewDecoder(bytes.NewReader(a.body)).Decode(&review); err != nil {
		return "", err
	}
	return fmt.Sprintf("%+q", review.Status.UserInfo), nil
}
