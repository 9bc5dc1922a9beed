package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"spillway/test/framework/controlplane"
)

// What is the same in all clusters: each is in a network of its own.
const (
	apiAddress  = "10.123.0.1:6443" // on the first node
	dnsAddress  = "10.123.0.1:53"
	serviceNet  = "10.96.0.0/16"
	apiService  = "10.96.0.1"
	dnsService  = "10.96.0.10"
	podNets     = "10.244.0.0/16" // of all nodes
	etcdAddress = "http://127.0.0.1:2379"
	cni         = "/usr/lib/cni" // where Debian's containernetworking-plugins are
	containerd  = "/run/containerd/containerd.sock"
	pauseImage  = "localhost/pause:1"
)

// dirVariable names a folder with a build to use instead of bin/node of this repository.
const dirVariable = "NODE_DIR"

// programFolders are the folders of the programs that the project builds: etcd and kubectl, the
// other programs of the control plane, kubelet and kube-proxy, and all others of a node.
type programFolders struct {
	controlplane, kubernetes, agents, node string
	minor                                  string // of an older Kubernetes; "": the newest
}

// programs returns where they are. The error says how to build them.
func programs() (programFolders, error) {
	var b programFolders
	var err error
	if b.controlplane, err = controlplane.BinDir(); err != nil {
		return programFolders{}, err
	}
	if b.minor, b.kubernetes, err = controlplane.VersionDir(); err != nil {
		return programFolders{}, err
	}
	if b.node = os.Getenv(dirVariable); b.node == "" {
		root, err := controlplane.RepositoryRoot()
		if err != nil {
			return programFolders{}, err
		}
		b.node = filepath.Join(root, "bin", "node")
	}
	b.agents = b.node
	if b.minor != "" {
		b.agents = b.kubernetes
	}
	for _, want := range []struct{ dir, names string }{
		{b.kubernetes, "kube-apiserver kube-controller-manager kube-scheduler"}, {b.agents, "kubelet kube-proxy"},
		{b.node, "containerd containerd-shim-runc-v2 ctr pause"},
	} {
		for name := range strings.FieldsSeq(want.names) {
			if _, err := os.Stat(filepath.Join(want.dir, name)); err != nil {
				return programFolders{}, fmt.Errorf("%s is not in %s: run `make cluster-build%s`, or point %s at an existing build",
					name, want.dir, b.setting(), dirVariable)
			}
		}
	}
	return b, nil
}

// setting is what make needs to build the same.
func (b programFolders) setting() string {
	if b.minor == "" {
		return ""
	}
	return " KUBERNETES=" + b.minor
}

func (b programFolders) etcd(s *supervisor) error {
	return s.keep("etcd", b.controlplane+"/etcd", "--data-dir="+s.dir+"/etcd", "--listen-client-urls="+etcdAddress,
		"--advertise-client-urls="+etcdAddress, "--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync",
		"--log-level=error")
}

func (b programFolders) apiserver(s *supervisor) error {
	pki := s.dir + "/"
	return s.keep("kube-apiserver", b.kubernetes+"/kube-apiserver", "--etcd-servers="+etcdAddress,
		"--secure-port=6443", "--advertise-address="+placeOf(0).address(),
		"--tls-cert-file="+pki+"apiserver.crt", "--tls-private-key-file="+pki+"apiserver.key",
		"--client-ca-file="+pki+"ca.crt",
		"--kubelet-client-certificate="+pki+"apiserver-kubelet.crt",
		"--kubelet-client-key="+pki+"apiserver-kubelet.key",
		"--kubelet-certificate-authority="+pki+"ca.crt", "--kubelet-preferred-address-types=InternalIP",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+pki+"service-account.key",
		"--service-account-signing-key-file="+pki+"service-account.key",
		"--service-cluster-ip-range="+serviceNet, "--allow-privileged=true")
}

func (b programFolders) controllerManager(s *supervisor) error {
	return b.controller(s, "kube-controller-manager", "--use-service-account-credentials",
		"--service-account-private-key-file="+s.dir+"/service-account.key", "--root-ca-file="+s.dir+"/ca.crt",
		"--node-monitor-grace-period=20s", // so that Services forget a node before its clients notice its silence
		"--cluster-signing-cert-file="+s.dir+"/ca.crt", "--cluster-signing-key-file="+s.dir+"/ca.key")
}

func (b programFolders) scheduler(s *supervisor) error { return b.controller(s, "kube-scheduler") }

func (b programFolders) controller(s *supervisor, name string, args ...string) error {
	kubeconfig := s.dir + "/" + name + ".kubeconfig"
	return s.keep(name, b.kubernetes+"/"+name, append(args, "--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig, "--leader-elect=false")...)
}

// containerd runs containers by runc. A machine that may not lower a process's oom_score_adj (no
// CAP_SYS_RESOURCE) has runc fail without restrict_oom_score_adj.
func (b programFolders) containerd(s *supervisor, at place) error {
	if err := os.MkdirAll(s.dir+"/cni", 0o755); err != nil {
		return err
	}
	// ptp, not bridge: pods reach each other through Services by routes, without br_netfilter
	if err := write(s.dir+"/cni/10-node.conflist", `{"cniVersion": "1.0.0", "name": "node", "plugins": [
	{"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "dataDir": "/run/cni/ipam",
		"ranges": [[{"subnet": "`+at.podNet()+`"}]], "routes": [{"dst": "0.0.0.0/0"}]}}
]}`); err != nil {
		return err
	}
	if err := write(s.dir+"/containerd.toml", `version = 2
root = "`+s.dir+`/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing", "io.containerd.nri.v1.nri",
]
[grpc]
  address = "`+containerd+`"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "`+pauseImage+`"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "`+cni+`"
  conf_dir = "`+s.dir+`/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
`); err != nil {
		return err
	}
	return s.keep("containerd", b.node+"/containerd", "--config="+s.dir+"/containerd.toml")
}

// images imports those that the folder of images has.
func (b programFolders) images(ctx context.Context, s *supervisor) error {
	if err := awaiting(ctx, "containerd", func() error {
		_, err := os.Stat(containerd)
		return err
	}); err != nil {
		return err
	}
	archives, err := filepath.Glob(imageDir(s.dir) + "/*.tar")
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := awaiting(ctx, "image "+archive, func() error {
			return s.run("ctr", "--namespace=k8s.io", "images", "import", archive)
		}); err != nil {
			return err
		}
	}
	return nil
}

func imageDir(dir string) string { return dir + "/images" }

func (b programFolders) kubelet(s *supervisor, at place) error {
	// Images are never collected: no registry could give them back.
	config := s.dir + "/kubelet.yaml"
	if err := write(config, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
address: `+at.address()+`
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: `+s.dir+`/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: `+s.dir+`/kubelet-serving.crt
tlsPrivateKeyFile: `+s.dir+`/kubelet-serving.key
containerRuntimeEndpoint: unix://`+containerd+`
cgroupDriver: cgroupfs
protectKernelDefaults: true
clusterDomain: cluster.local
clusterDNS: [`+dnsService+`]
resolvConf: /run/resolv.conf
podLogsDir: `+s.dir+`/log
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
oomScoreAdj: 0
readOnlyPort: 0
nodeStatusUpdateFrequency: 5s
syncFrequency: 10s
`); err != nil {
		return err
	}
	return s.keep("kubelet", b.agents+"/kubelet", "--config="+config, "--kubeconfig="+s.dir+"/kubelet.kubeconfig",
		"--hostname-override="+at.name(), "--node-ip="+at.address())
}

// proxy leaves conntrack's limits alone: they are the machine's, not the network namespace's.
func (b programFolders) proxy(s *supervisor, at place) error {
	config := s.dir + "/kube-proxy.yaml"
	if err := write(config, `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: `+s.dir+`/kube-proxy.kubeconfig}
hostnameOverride: `+at.name()+`
clusterCIDR: `+podNets+`
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
oomScoreAdj: 0
`); err != nil {
		return err
	}
	return s.keep("kube-proxy", b.agents+"/kube-proxy", "--config="+config)
}
