package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

// kubelet runs the containers of one pod as processes of this machine: each with its arguments, its
// environment and no other, its user, and its volumes where it mounts them, which it alone sees
// there.
type kubelet struct {
	t       *testing.T
	cp      *controlplane.ControlPlane
	client  kubernetes.Interface
	pod     *corev1.Pod
	volumes string // folders, by name
	tokens  int
}

// newKubelet makes the volumes of a pod that kube-apiserver has.
func newKubelet(t *testing.T, cp *controlplane.ControlPlane, client kubernetes.Interface, pod *corev1.Pod) *kubelet {
	t.Helper()
	if out, err := exec.Command(unshare()[0], append(unshare()[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("containers cannot be given mounts of their own here, neither as root nor in a user namespace: %v: %s", err,
			out)
	}
	k := &kubelet{t: t, cp: cp, client: client, pod: pod, volumes: t.TempDir()}
	for _, v := range pod.Spec.Volumes {
		dir := k.volume(v.Name)
		must(t, os.Mkdir(dir, 0o755))
		switch {
		case v.EmptyDir != nil:
			must(t, os.Chmod(dir, 0o777)) // as the kubelet does
		case v.Projected == nil:
			t.Fatalf("volume %s is of a kind that is not known here", v.Name)
		}
	}
	return k
}

func (k *kubelet) volume(name string) string { return filepath.Join(k.volumes, name) }

// rotate gives the pod a new token, in the manner of the kubelet: the one before is good for some
// time yet.
func (k *kubelet) rotate() string {
	k.t.Helper()
	k.tokens++
	token, err := k.client.CoreV1().ServiceAccounts(k.pod.Namespace).CreateToken(k.t.Context(),
		k.pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod",
				APIVersion: "v1", Name: k.pod.Name, UID: k.pod.UID}},
		}, metav1.CreateOptions{})
	must(k.t, err)
	for _, v := range k.pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		dir := k.volume(v.Name)
		fresh := fmt.Sprintf("..time-%d", k.tokens)
		must(k.t, os.Mkdir(filepath.Join(dir, fresh), 0o755))
		for file, text := range map[string][]byte{"token": []byte(token.Status.Token), "namespace": []byte(k.pod.Namespace),
			"ca.crt": k.cp.CA()} {
			must(k.t, os.WriteFile(filepath.Join(dir, fresh, file), text, 0o644))
			_ = os.Symlink(filepath.Join("..data", file), filepath.Join(dir, file)) // there but for the first time
		}
		must(k.t, os.Symlink(fresh, filepath.Join(dir, "..data_tmp")))
		must(k.t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		if k.tokens > 1 {
			must(k.t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..time-%d", k.tokens-1))))
		}
	}
	return token.Status.Token
}

// unshare runs a command with mounts of its own.
func unshare() []string {
	if os.Getuid() == 0 {
		return []string{"unshare", "--mount", "--propagation=private"}
	}
	return []string{"unshare", "--mount", "--propagation=private", "--map-root-user"}
}

// run starts a container, in whose image is but a program. It ends with the test.
func (k *kubelet) run(c corev1.Container, program string) (*process.Child, *process.Log) {
	k.t.Helper()
	var script strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&script, format+"\n", args...) }
	say("mount -t tmpfs -o mode=755 tmpfs /run")
	say("[ -L /var/run ] || mount -t tmpfs -o mode=755 tmpfs /var/run")
	say("mkdir /run/image; : >/run/image/program; mount --bind '%s' /run/image/program", program)
	for _, m := range c.VolumeMounts {
		say("mkdir -p '%s'; mount --bind '%s' '%s'", m.MountPath, k.volume(m.Name), m.MountPath)
		if m.ReadOnly {
			say("mount -o remount,bind,ro '%s'", m.MountPath)
		}
	}
	as := "setpriv --pdeathsig=KILL"
	if os.Getuid() == 0 { // if os.Getuid() == 0 { // in a user namespace there is no other user
		as += fmt.Sprintf(" --reuid=%[1]d --regid=%[1]d --clear-groups --no-new-privs --inh-caps=-all", k.user(c))
	}
	say(`exec env -i "${variables[@]}" %s /run/image/program "$@"`, as)
	args := append(unshare(), "bash", "-ec", "variables=("+quoted(k.environment(c))+")\n"+script.String(), c.Name)
	log := process.NewLog(k.t)
	child, err := process.Start(exec.Command(args[0], append(args[1:], c.Args...)...), nil, log.File)
	must(k.t, err)
	k.t.Cleanup(func() {
		child.Stop(10 * time.Second)
		if k.t.Failed() {
			k.t.Logf("container %s", c.Name)
			log.Show(k.t)
		}
	})
	return child, log
}

// user is the user that a container runs as: the one of the image, 65534 here, if its pod names
// none.
func (k *kubelet) user(c corev1.Container) int64 {
	if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
		return *s.RunAsUser
	}
	if s := k.pod.Spec.SecurityContext; s != nil && s.RunAsUser != nil {
		return *s.RunAsUser
	}
	return 65534
}

func quoted(all []string) string {
	var out strings.Builder
	for _, text := range all {
		out.WriteString(" '" + strings.ReplaceAll(text, "'", `'\''`) + "'")
	}
	return out.String()
}

// environment is what the kubelet gives a container: where the API server is, unless its own
// variables say otherwise.
func (k *kubelet) environment(c corev1.Container) []string {
	at, err := url.Parse(k.cp.URL())
	must(k.t, err)
	values := map[string]string{"KUBERNETES_SERVICE_HOST": at.Hostname(), "KUBERNETES_SERVICE_PORT": at.Port()}
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			k.t.Fatalf("variable %s is of a kind that is not known here", e.Name)
		}
		values[e.Name] = e.Value
	}
	var all []string
	for name, value := range values {
		all = append(all, name+"="+value)
	}
	return all
}

// lines are what an incluster program has printed.
func lines(log *process.Log) (all []line) {
	for text := range bytes.Lines(log.Text()) {
		var l line
		if json.Unmarshal(text, &l) == nil {
			all = append(all, l)
		}
	}
	return all
}

// line is incluster's Line.
type line struct {
	Added  string
	Listed int
	Memory bool
	Token  string
	Host   string
	Error  string
}

// freePorts are two without a listener, which the kernel gives to no other socket before they are
// used.
func freePorts(t *testing.T) (ports [2]string) {
	t.Helper()
	for i := range ports {
		port, err := controlplane.FreePort()
		must(t, err)
		ports[i] = strconv.Itoa(port)
	}
	return ports
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
