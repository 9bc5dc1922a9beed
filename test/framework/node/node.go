// Package node starts a real cluster of one node: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, containerd, kubelet, kube-proxy and a DNS server, in mount, network, PID, UTS,
// IPC and cgroup namespaces of their own. The invariant: outside them there are no more than two
// listeners on loopback, which the program that starts the node holds; and nothing of it is left
// when that program has ended, however it ends, but for empty cgroups after a SIGKILL, which the
// next node removes.
//
// It needs Linux, root, `make cluster-build` and `make cluster-tools`. A program that starts nodes
// calls Main before all else, since it is PID 1 of them, too.
package node

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// Options say what to start. The zero value is a node in a temporary folder.
type Options struct {
	// Images are imported besides the pause image.
	Images []Image
	// Archives are image archives (OCI or docker) to import.
	Archives []string
	// Log receives a line per step. nil means none.
	Log io.Writer
}

// Node is a running cluster of one node.
type Node struct {
	options    Options
	dir        string
	cgroup     string
	config     *rest.Config
	api, dials *net.TCPListener
	init       *process.Child
}

// nodes counts those that this process has started.
var nodes atomic.Int64

// Start returns a node that is Ready. On error nothing is left behind.
func Start(ctx context.Context, options Options) (*Node, error) {
	if options.Log == nil {
		options.Log = io.Discard
	}
	if err := Missing(); err != nil {
		return nil, err
	}
	n := &Node{options: options, cgroup: fmt.Sprint(cgroupPrefix, os.Getpid(), "-", nodes.Add(1))}
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
		if err := image.write(fmt.Sprint(imageDir(dir), "/", i, ".tar")); err != nil {
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
	return nil
}

// PowerOn starts all programs, in the state in which the last PowerOff left their disks, and
// returns when the node is Ready.
func (n *Node) PowerOn(ctx context.Context) error {
	progress, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer progress.Close()
	log, err := os.OpenFile(filepath.Join(n.dir, "init.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{outerInit, n.dir, n.cgroup}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	cmd.ExtraFiles = []*os.File{out}
	for _, l := range []*net.TCPListener{n.api, n.dials} {
		file, err := l.File()
		if err != nil {
			return err
		}
		defer file.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	n.init, err = process.Start(cmd, nil, log)
	out.Close()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, n.init.Kill)
	defer stop()
	for lines := bufio.NewScanner(progress); lines.Scan(); {
		line := lines.Text()
		if line == done {
			return nil
		}
		if text, ok := strings.CutPrefix(line, failed); ok {
			err = errors.New(text)
			break
		}
		fmt.Fprintln(n.options.Log, "node:", line)
	}
	n.init.Kill()
	text, _ := os.ReadFile(log.Name()) // the error says enough without
	return fmt.Errorf("the node did not start: %w\n%s", cmp.Or(err, context.Cause(ctx), n.init.Err), text)
}

// PowerOff ends all processes of the node at once (SIGKILL). What they have written stays, and so
// do the node's addresses on loopback.
func (n *Node) PowerOff() error {
	if n.init == nil {
		return nil
	}
	n.init.Kill() // PID 1: the kernel ends the others before it reports the end of this one
	var err error
	for range 100 { // a cgroup is busy until the last process in it has been reaped
		if err = removeCgroups(n.cgroup); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// Stop ends the node and removes all that it has written.
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

// KillContainer kills a container's process (SIGKILL), as a pod's status names it:
// containerd://ID.
func (n *Node) KillContainer(id string) error {
	bin, err := programs()
	if err != nil {
		return err
	}
	_, id, _ = strings.Cut(id, "://")
	cmd := exec.Command("nsenter", "--target="+strconv.Itoa(n.init.Pid()), "--mount", "--pid", bin.node+"/ctr",
		"--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", id)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot kill container %s: %w: %s", id, err, out)
	}
	return nil
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
	files := map[string][]byte{"ca.crt": authority.PEM(), "ca.key": key, "service-account.key": signing}
	add := func(name string, pair controlplane.KeyPair, err error) error {
		files[name+".crt"], files[name+".key"] = pair.Cert, pair.Key
		return err
	}
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
		if err := controlplane.WriteKubeconfig(filepath.Join(n.dir, name+".kubeconfig"), config); err != nil {
			return err
		}
		if name == "admin" {
			config.Host = "https://" + n.api.Addr().String()
			n.config = config
			return controlplane.WriteKubeconfig(n.Kubeconfig(), config)
		}
		return nil
	}
	err = errors.Join(
		server("apiserver", "kube-apiserver", address, apiService, "kubernetes", "kubernetes.default",
			"kubernetes.default.svc.cluster.local"),
		server("kubelet-serving", hostname, hostname, address),
		client("admin", "admin", "system:masters"),
		client("apiserver-kubelet", "apiserver-kubelet", "system:masters"),
		client("kube-controller-manager", "system:kube-controller-manager"),
		client("kube-scheduler", "system:kube-scheduler"),
		client("kubelet", "system:node:"+hostname, "system:nodes"),
		client("kube-proxy", "system:kube-proxy"),
	)
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(n.dir, name), content, 0o600))
	}
	return err
}
