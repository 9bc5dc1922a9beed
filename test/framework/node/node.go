// Package node starts a real cluster. Its first node has etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, containerd, kubelet, kube-proxy and a DNS server, in
// mount, network, PID, UTS, IPC and cgroup namespaces of their own. Further nodes (workers) have
// containerd, kubelet and kube-proxy in namespaces of their own, and a link to the first. The
// invariant: outside the namespaces there are no more than two listeners on loopback, which the
// program that starts the cluster holds; and nothing of it is left when that program has ended,
// however it ends, but for empty cgroups after a SIGKILL, which the next node removes.
//
// It needs Linux, root, `make cluster-build` and `make cluster-tools`. A program that starts nodes
// calls Main before all else, since it is PID 1 of them, too.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
)

// Options say what to start. The zero value is a cluster of one node in a temporary folder.
type Options struct {
	// Workers is the number of nodes beside the first.
	Workers int
	// Images are imported besides the pause image.
	Images []Image
	// Archives are image archives (OCI or docker) to import.
	Archives []string
	// Log receives a line per step. nil means none.
	Log io.Writer
}

// Node is a running cluster: its first node, and its workers.
type Node struct {
	options    Options
	dir        string
	config     *rest.Config
	api, dials *net.TCPListener
	first      *machine
	workers    []*machine
}

// clusters counts those that this process has started.
var clusters atomic.Int64

// Start returns a cluster of which all nodes are Ready. On error nothing is left behind.
func Start(ctx context.Context, options Options) (*Node, error) {
	if options.Log == nil {
		options.Log = io.Discard
	}
	if err := Missing(); err != nil {
		return nil, err
	}
	n := &Node{options: options}
	err := n.prepare()
	if err == nil {
		err = n.PowerOn(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

func (n *Node) prepare() error {
	dir, err := os.MkdirTemp("", "spillway-node-")
	if err != nil {
		return err
	}
	n.dir = dir
	cgroup := fmt.Sprint(cgroupPrefix, os.Getpid(), "-", clusters.Add(1))
	n.first = &machine{place: placeOf(0), dir: dir, cgroup: cgroup}
	for i := range n.options.Workers {
		at := placeOf(i + 1)
		n.workers = append(n.workers, &machine{place: at, dir: filepath.Join(dir, at.name()),
			cgroup: cgroup + "-" + at.name()})
	}
	for _, l := range []**net.TCPListener{&n.api, &n.dials} {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("cannot listen on loopback: %w", err)
		}
		*l = listener.(*net.TCPListener)
	}
	if err := n.identities(); err != nil {
		return err
	}
	bin, err := programs()
	if err != nil {
		return err
	}
	if err := os.Mkdir(imageDir(dir), 0o755); err != nil {
		return err
	}
	pause := Image{Name: pauseImage, Program: bin.node + "/pause", User: "65535:65535"}
	for i, image := range append([]Image{pause}, n.options.Images...) {
		if err := image.Write(fmt.Sprint(imageDir(dir), "/", i, ".tar")); err != nil {
			return err
		}
	}
	for i, archive := range n.options.Archives {
		path, err := filepath.Abs(archive)
		if err == nil {
			err = os.Symlink(path, fmt.Sprint(imageDir(dir), "/archive-", i, ".tar"))
		}
		if err != nil {
			return err
		}
	}
	for _, w := range n.workers {
		if err := os.Symlink(imageDir(dir), imageDir(w.dir)); err != nil {
			return err
		}
	}
	return nil
}

// PowerOn starts all programs, in the state in which the last PowerOff left their disks, and
// returns when all nodes are Ready.
func (n *Node) PowerOn(ctx context.Context) error {
	var files []*os.File
	for _, l := range []*net.TCPListener{n.api, n.dials} {
		file, err := l.File()
		if err != nil {
			return err
		}
		defer file.Close()
		files = append(files, file)
	}
	if err := n.first.powerOn(ctx, n.options.Log, nil, files...); err != nil {
		return err
	}
	var all errgroup.Group
	for i := range n.workers {
		all.Go(func() error { return n.PowerOnWorker(ctx, i) })
	}
	return all.Wait()
}

// PowerOnWorker starts a worker (from 0), and returns when it is Ready.
func (n *Node) PowerOnWorker(ctx context.Context, i int) error {
	w := n.workers[i]
	return w.powerOn(ctx, n.options.Log, func() error { return w.connect(n.first) })
}

// PowerOff ends all processes of the cluster at once (SIGKILL). What they have written stays, and
// so do the cluster's addresses on loopback.
func (n *Node) PowerOff() error {
	var all error
	for i := range n.workers {
		all = errors.Join(all, n.PowerOffWorker(i))
	}
	if n.first == nil {
		return nil
	}
	return errors.Join(all, n.first.powerOff())
}

// PowerOffWorker ends all processes of a worker (from 0) as a power cut does: no peer receives a
// word of it.
func (n *Node) PowerOffWorker(i int) error {
	w := n.workers[i]
	if w.init == nil || w.init.Ended() {
		return nil
	}
	if n.first.init != nil && !n.first.init.Ended() {
		if err := w.disconnect(n.first); err != nil {
			return err
		}
	}
	return w.powerOff()
}

// Stop ends the cluster and removes all that it has written.
func (n *Node) Stop() error {
	err := n.PowerOff()
	for _, l := range []*net.TCPListener{n.api, n.dials} {
		if l != nil {
			l.Close()
		}
	}
	if n.dir == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(n.dir))
}

// Nodes are the names of all nodes. The first is that with the control plane; the others are the
// workers.
func (n *Node) Nodes() (names []string) {
	for _, m := range n.machines() {
		names = append(names, m.name())
	}
	return names
}

func (n *Node) machines() []*machine { return append([]*machine{n.first}, n.workers...) }

// Config is the admin's, for clients on this machine. The caller owns it.
func (n *Node) Config() *rest.Config { return rest.CopyConfig(n.config) }

// Kubeconfig is a file with the same.
func (n *Node) Kubeconfig() string { return filepath.Join(n.dir, "kubeconfig") }

// Dir holds the logs of the node's programs, and all that they write.
func (n *Node) Dir() string { return n.dir }

// Dial connects to an address of the node's network, such as name.namespace.svc.cluster.local:443,
// as a process on the node would.
func (n *Node) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp4", n.dials.Addr().String())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	_, err = fmt.Fprintln(conn, address)
	var reason string
	if err == nil {
		reason, err = readLine(conn)
	}
	switch {
	case err != nil || reason == "":
	case strings.Contains(reason, syscall.ECONNREFUSED.Error()):
		err = fmt.Errorf("%s: %w", reason, syscall.ECONNREFUSED) // clients treat it in a way of its own
	default:
		err = errors.New(reason)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("cannot connect to %s on the node: %w", address, err)
	}
	return conn, nil
}

// readLine reads no byte beyond the line.
func readLine(r io.Reader) (string, error) {
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(r, one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			return string(line), nil
		}
		line = append(line, one[0])
	}
}

// KillContainer kills a container's process (SIGKILL) on the named node. The container is named as
// in a pod's status: containerd://ID.
func (n *Node) KillContainer(node, id string) error {
	bin, err := programs()
	if err != nil {
		return err
	}
	_, id, _ = strings.Cut(id, "://")
	cmd, err := n.Command(node, bin.node+"/ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", id)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot kill container %s: %w: %s", id, err, out)
	}
	return nil
}

// ImportCommand imports the image archive (OCI or docker) that is its standard input on the named
// node. The caller opens the archive, because the node has a /run and a /var/lib of its own.
func (n *Node) ImportCommand(node string) (*exec.Cmd, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	return n.Command(node, bin.node+"/ctr", "--namespace=k8s.io", "images", "import", "-")
}

// Command is a program to be run in the mount, network and PID namespaces of the named node.
func (n *Node) Command(node, program string, args ...string) (*exec.Cmd, error) {
	for _, m := range n.machines() {
		if m.name() == node {
			return m.command(program, args...), nil
		}
	}
	return nil, fmt.Errorf("there is no node %q", node)
}

// identities makes the certificates and kubeconfigs of all programs.
func (n *Node) identities() error {
	authority, err := controlplane.NewAuthority()
	if err != nil {
		return err
	}
	key, err := authority.Key()
	if err != nil {
		return err
	}
	serviceAccount, err := controlplane.NewAuthority() // for its key alone
	if err != nil {
		return err
	}
	signing, err := serviceAccount.Key()
	if err != nil {
		return err
	}
	authorityFile := map[string][]byte{"ca.crt": authority.PEM()}
	files := maps.Clone(authorityFile)
	files["ca.key"], files["service-account.key"] = key, signing
	add := func(name string, pair controlplane.KeyPair, err error) error {
		files[name+".crt"], files[name+".key"] = pair.Cert, pair.Key
		return err
	}
	dir := n.dir
	server := func(name, commonName string, hosts ...string) error {
		pair, err := authority.IssueServer(commonName, hosts...)
		return add(name, pair, err)
	}
	client := func(name, user string, groups ...string) error {
		pair, err := authority.IssueClient(user, groups...)
		if err := add(name, pair, err); err != nil {
			return err
		}
		config := &rest.Config{Host: "https://" + apiAddress, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
			CAData: authority.PEM(), CertData: pair.Cert, KeyData: pair.Key}}
		if err := controlplane.WriteKubeconfig(filepath.Join(dir, name+".kubeconfig"), config); err != nil {
			return err
		}
		if name == "admin" && dir == n.dir {
			config.Host = "https://" + n.api.Addr().String()
			n.config = config
			return controlplane.WriteKubeconfig(n.Kubeconfig(), config)
		}
		return nil
	}
	nodeOf := func(at place) error {
		return errors.Join(
			server("kubelet-serving", at.name(), at.name(), at.address()),
			client("admin", "admin", "system:masters"),
			client("kubelet", "system:node:"+at.name(), "system:nodes"),
			client("kube-proxy", "system:kube-proxy"),
		)
	}
	write := func() (err error) {
		for name, content := range files {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		}
		return err
	}
	err = errors.Join(
		server("apiserver", "kube-apiserver", n.first.address(), apiService, "kubernetes", "kubernetes.default",
			"kubernetes.default.svc.cluster.local"),
		nodeOf(n.first.place),
		client("apiserver-kubelet", "apiserver-kubelet", "system:masters"),
		client("kube-controller-manager", "system:kube-controller-manager"),
		client("kube-scheduler", "system:kube-scheduler"),
		write(),
	)
	for _, w := range n.workers {
		dir, files = w.dir, maps.Clone(authorityFile)
		err = errors.Join(err, os.Mkdir(dir, 0o755), nodeOf(w.place), write())
	}
	return err
}
