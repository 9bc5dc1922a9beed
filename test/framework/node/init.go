package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// A program that starts nodes is also PID 1 of them, under these names: first without, then with a
// cgroup namespace.
const (
	outerInit = "spillway-node-cgroup"
	innerInit = "spillway-node-init"
)

// What PID 1 has open besides the standard streams.
const (
	progressFile = 3 + iota // lines for Start; the last is done or an error
	apiFile                 // a listener of the starting program, for the API server
	dialFile                // another, for any address of the node, see Dial
)

const (
	done   = "ready"
	failed = "error: "
)

// Main is to be called first in the main function, or TestMain, of a program that starts nodes. In
// the process that is PID 1 of one it does not return.
func Main() {
	var err error
	switch os.Args[0] {
	case outerInit:
		err = enterCgroup(os.Args[3], innerInit, os.Args[1], os.Args[2])
	case innerInit:
		var number int
		if number, err = strconv.Atoi(os.Args[2]); err == nil {
			err = initialize(os.Args[1], placeOf(number))
		}
	default:
		return
	}
	fmt.Fprintln(os.NewFile(progressFile, "progress"), failed+err.Error())
	os.Exit(1)
}

// initialize is PID 1. It returns with an error or not at all.
func initialize(dir string, at place) error {
	progress := os.NewFile(progressFile, "progress")
	started := time.Now()
	step := func(what string) { fmt.Fprintf(progress, "%s after %.1fs\n", what, time.Since(started).Seconds()) }
	bin, err := programs()
	if err != nil {
		return err
	}
	if err := mounts(dir); err != nil {
		return err
	}
	if err := os.Setenv("PATH", bin.node+":/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	s := newSupervisor(dir)
	client, err := adminClient(dir)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if at.number == 0 {
		err = bin.startFirst(ctx, s, at, client, step)
	} else {
		err = bin.startWorker(ctx, s, at, step)
	}
	if err != nil {
		return err
	}
	if err := awaiting(ctx, "the node to be Ready", func() error { return ready(ctx, client, at, started) }); err != nil {
		return err
	}
	step("the node is Ready")
	fmt.Fprintln(progress, done)
	select {}
}

// startFirst starts the programs of the first node.
func (b programFolders) startFirst(ctx context.Context, s *supervisor, at place, client kubernetes.Interface,
	step func(string)) error {
	forwarded, err := listener(apiFile)
	if err != nil {
		return err
	}
	dialled, err := listener(dialFile)
	if err != nil {
		return err
	}
	if err := network(s, at); err != nil {
		return err
	}
	go accept(forwarded, func(conn net.Conn) { forward(conn, apiAddress) })
	go accept(dialled, dialFor)
	step("its namespaces are there")
	for _, start := range []func() error{
		func() error { return b.etcd(s) },
		func() error { return b.containerd(s, at) },
		func() error { return b.apiserver(s) },
		func() error { return b.images(ctx, s) },
	} {
		if err := start(); err != nil {
			return err
		}
	}
	step("containerd has its images")
	if err := awaiting(ctx, "kube-apiserver", func() error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	step("kube-apiserver is ready")
	if err := errors.Join(b.controllerManager(s), b.scheduler(s), b.kubelet(s, at), b.proxy(s, at)); err != nil {
		return err
	}
	return serveNames(ctx, client)
}

// startWorker starts the programs of another node.
func (b programFolders) startWorker(ctx context.Context, s *supervisor, at place, step func(string)) error {
	if err := workerNetwork(ctx, s, at); err != nil {
		return err
	}
	if err := b.containerd(s, at); err != nil {
		return err
	}
	if err := b.images(ctx, s); err != nil {
		return err
	}
	step("containerd has its images")
	return errors.Join(b.kubelet(s, at), b.proxy(s, at))
}

// network sets the first node's interfaces up. A pair of veth carries its address, because not
// every kernel has dummy devices. Nothing is out there, but the kubelet finds the node's address by
// the default route.
func network(s *supervisor, at place) error {
	return setUp(s, at, "link add node0 type veth peer name node1", "address add "+at.address()+"/32 dev node0",
		"link set node0 up", "link set node1 up", "route add default dev node0")
}

// workerNetwork sets a worker's interfaces up, once it has its link.
func workerNetwork(ctx context.Context, s *supervisor, at place) error {
	if err := awaiting(ctx, "the link to the first node", func() error {
		_, err := net.InterfaceByName(uplink)
		return err
	}); err != nil {
		return err
	}
	first := placeOf(0).address()
	return setUp(s, at, "address add "+at.address()+"/32 dev "+uplink, "link set "+uplink+" up",
		"route add "+first+"/32 dev "+uplink, "route add default via "+first)
}

func setUp(s *supervisor, at place, commands ...string) error {
	for _, command := range append([]string{"link set lo up"}, commands...) {
		if err := s.run("ip", strings.Fields(command)...); err != nil {
			return err
		}
	}
	if err := unix.Sethostname([]byte(at.name())); err != nil {
		return fmt.Errorf("cannot set the host's name: %w", err)
	}
	if err := write("/proc/sys/net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	return os.WriteFile("/run/resolv.conf", []byte("nameserver "+placeOf(0).address()+"\n"), 0o644)
}

func listener(fd uintptr) (net.Listener, error) {
	file := os.NewFile(fd, "listener")
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("PID 1 has no listener: %w", err)
	}
	return l, nil
}

// forward leads a connection to an address of the node.
func forward(conn net.Conn, address string) {
	to, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return
	}
	defer to.Close()
	join(conn, to)
}

// dialFor leads a connection to the address that its first line names. The answer is an empty line,
// or one with the reason why not.
func dialFor(conn net.Conn) {
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, dnsAddress)
	}}
	d := net.Dialer{Timeout: 10 * time.Second, Resolver: resolver}
	to, err := d.Dial("tcp4", strings.TrimSpace(line))
	if err != nil {
		fmt.Fprintln(conn, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	defer to.Close()
	if _, err := fmt.Fprintln(conn); err == nil {
		join(conn, to) // the client has sent nothing behind its line: it waits for the answer
	}
}

func adminClient(dir string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// serveNames starts the cluster's DNS, and the Service kube-dns that leads to it.
func serveNames(ctx context.Context, client kubernetes.Interface) error {
	n := newNames(ctx, informers.NewSharedInformerFactory(client, 0))
	if err := n.serve(dnsAddress); err != nil {
		return err
	}
	const name = "kube-dns"
	_, err := client.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err // nil after a power cut
	}
	meta := metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem,
		Labels: map[string]string{discoveryv1.LabelServiceName: name}}
	var ports []corev1.ServicePort
	var targets []discoveryv1.EndpointPort
	for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
		port, portName := int32(53), strings.ToLower(string(protocol))
		ports = append(ports, corev1.ServicePort{Name: portName, Port: port, Protocol: protocol})
		targets = append(targets, discoveryv1.EndpointPort{Name: &portName, Port: &port, Protocol: &protocol})
	}
	_, err = client.DiscoveryV1().EndpointSlices(meta.Namespace).Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: meta,
		AddressType: discoveryv1.AddressTypeIPv4, Ports: targets,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{placeOf(0).address()}}}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = client.CoreV1().Services(meta.Namespace).Create(ctx, &corev1.Service{ObjectMeta: meta,
		Spec: corev1.ServiceSpec{ClusterIP: dnsService, Ports: ports}}, metav1.CreateOptions{})
	return err
}

// ready returns why pods cannot be started yet. What the kubelet reported before a time is of
// another life.
func ready(ctx context.Context, client kubernetes.Interface, at place, since time.Time) error {
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default",
		metav1.GetOptions{}); err != nil {
		return err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, at.name(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue &&
			!condition.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) && len(node.Spec.Taints) == 0 {
			return nil
		}
	}
	return errors.New("its condition Ready is not True")
}

// awaiting tries until it succeeds.
func awaiting(ctx context.Context, what string, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited unsuccessfully for %s: %w", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
