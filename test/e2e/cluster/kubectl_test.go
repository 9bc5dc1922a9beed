package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/process"
)

const (
	sessions = "kubectl" // the namespace
	sent     = 1 << 20   // bytes that a session sends, or receives

	// shell writes each line of a FIFO into the container's log, and serves /tmp over HTTP. The
	// FIFO is open for writing here, too: no writer waits, and no line is lost. The line `end 7`
	// ends the container once process 7, the writer, has ended: the end of a container kills what
	// runs in it.
	shell = `mkfifo /tmp/lines && exec 3<>/tmp/lines && httpd -p 8080 -h /tmp && echo started &&
while read -r line writer <&3; do
	if [ "$line" = end ]; then
		while [ -d "/proc/$writer" ]; do sleep 0.1; done
		exit 0
	fi
	echo "$line"
done`
)

// testKubectl runs sessions of kubectl with a pod, directly and through Spillway's Service, over
// WebSockets and over SPDY: they print and carry the same.
func (c *cluster) testKubectl(t *testing.T) {
	c.namespace(t, sessions, row{})
	_, err := c.client.RbacV1().RoleBindings(sessions).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: sessions}},
	}, metav1.CreateOptions{})
	must(t, err)
	p := template()
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	container := &p.Spec.Containers[0]
	container.Image, container.Command = shellImage, []string{"/bin/sh", "-c", shell}
	container.VolumeMounts = []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
	create(t, c.client, sessions, pod(p))
	process.Awaiting(t, "the pod", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(sessions).Get(ctx, app, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !strings.Contains(c.log(t, pod, app), "started") {
			return fmt.Errorf("it has not started: %v", pod.Status)
		}
		return nil
	})

	ways := c.ways(t)
	programs := process.Kubectls(t)
	for version, program := range programs {
		for _, protocol := range []string{"WebSocket", "SPDY"} {
			t.Run(version+" over "+protocol, func(t *testing.T) {
				printed := map[string]string{}
				for way, kubeconfig := range ways {
					s := &session{program: program, kubeconfig: kubeconfig, protocol: protocol, dir: t.TempDir()}
					printed[way] = s.run(t)
				}
				if printed["direct"] != printed["through"] {
					t.Errorf("through Spillway it prints\n%s\ndirectly\n%s", printed["through"], printed["direct"])
				}
				t.Logf("both print\n%s", printed["through"])
			})
		}
	}
	t.Run("logs", func(t *testing.T) { c.follow(t, programs, ways) })
}

// ways are kubeconfigs of the account in the sessions' namespace: of kube-apiserver, and of
// Spillway's Service by its name for clients outside the cluster.
func (c *cluster) ways(t *testing.T) map[string]string {
	t.Helper()
	through := c.through(t, c.token(t, sessions, account))
	f := process.NewForwarderInto(t, c.Dial, through.Host+":443")
	_, port, _ := strings.Cut(f.Address, ":")
	through.Host = "https://localhost:" + port
	direct := c.Config()
	direct.BearerToken, direct.CertData, direct.KeyData = through.BearerToken, nil, nil
	files := map[string]string{}
	for way, config := range map[string]*rest.Config{"direct": direct, "through": through} {
		files[way] = filepath.Join(t.TempDir(), "kubeconfig")
		must(t, controlplane.WriteKubeconfig(files[way], config))
	}
	return files
}

// follow runs `logs --follow` of every kubectl in every way while the pod writes lines, one when
// all have printed the last. They end with the container.
func (c *cluster) follow(t *testing.T, programs, ways map[string]string) {
	t.Helper()
	type follower struct {
		*process.Child
		log *process.Log
	}
	all := map[string]follower{}
	for version, program := range programs {
		for way, kubeconfig := range ways {
			s := &session{program: program, kubeconfig: kubeconfig, dir: t.TempDir()}
			log := process.NewLog(t)
			// The context of the test ends before its cleanup, which ends the child.
			child, err := process.Start(s.command(context.WithoutCancel(t.Context()), "logs", app, "--follow"), nil, log.File)
			must(t, err)
			t.Cleanup(func() { child.Stop(5 * time.Second) })
			all[version+" "+way] = follower{child, log}
		}
	}
	want := "started\n"
	awaitPrinted := func() {
		t.Helper()
		process.Awaiting(t, "all logs to have the lines", func(context.Context) error {
			for name, f := range all {
				if text := string(klog.ReplaceAll(f.log.Text(), nil)); text != want {
					return fmt.Errorf("that of kubectl %s is %q, want %q", name, text, want)
				}
			}
			return nil
		})
	}
	say := func(line string) {
		t.Helper()
		c.kubectl(t, "--namespace="+sessions, "exec", app, "--", "sh", "-c", "echo "+line+" $$ >/tmp/lines")
	}
	awaitPrinted()
	for _, line := range []string{"one", "two"} {
		say(line)
		want += line + "\n"
		awaitPrinted()
	}
	for name, f := range all {
		if f.Ended() {
			t.Errorf("kubectl %s has ended before the container: %v", name, f.Err)
		}
	}
	say("end")
	process.Awaiting(t, "all logs to end", func(context.Context) error {
		for name, f := range all {
			if !f.Ended() {
				return fmt.Errorf("that of kubectl %s goes on", name)
			}
		}
		return nil
	})
	awaitPrinted()
	for name, f := range all {
		if f.Err != nil {
			t.Errorf("kubectl %s: %v", name, f.Err)
		}
	}
}

// session is a kubectl that is run several times, with files of its own.
type session struct {
	program, kubeconfig, dir string
	protocol                 string // of streams
}

// command is a kubectl with these arguments. Without -v=6 it falls back from a WebSocket to SPDY
// without a word.
func (s *session) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.program, append([]string{"--kubeconfig=" + s.kubeconfig,
		"--namespace=" + sessions}, args...)...)
	sockets := fmt.Sprint(s.protocol == "WebSocket")
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(s.dir, "cache"), "KUBECONFIG=",
		"KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+sockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+sockets)
	cmd.Dir = s.dir
	return cmd
}

var (
	// klog are log lines.
	klog = regexp.MustCompile(`(?m)^[IWE]\d{4} [\d:.]+ +\d+ .*\n`)
	// upgraded is the part of a log line that has the method of a request that switched protocols:
	// GET for a WebSocket, POST for SPDY.
	upgraded   = regexp.MustCompile(`\b(GET|POST)\b.*/(exec|portforward)\b.*\b101 Switching Protocols`)
	forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> 8080`)
)

// upgrades are the requests that switched protocols, by what kubectl has logged.
func upgrades(log []byte) string {
	var all strings.Builder
	for _, match := range upgraded.FindAllSubmatch(log, -1) {
		fmt.Fprintf(&all, "%s %s\n", match[1], match[2])
	}
	return all.String()
}

// run is what the sessions print, with the requests that switched protocols.
func (s *session) run(t *testing.T) string {
	t.Helper()
	content := make([]byte, sent)
	_, err := rand.Read(content)
	must(t, err)
	var printed strings.Builder
	do := func(input []byte, args ...string) (output []byte) {
		t.Helper()
		cmd := s.command(t.Context(), append([]string{"-v=6"}, args...)...)
		var said bytes.Buffer
		cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &said
		output, err := cmd.Output()
		fmt.Fprintf(&printed, "$ kubectl %s\n%s%sstdout: %d bytes, exit: %v\n", strings.Join(args, " "),
			upgrades(said.Bytes()), klog.ReplaceAll(said.Bytes(), nil), len(output), err)
		return output
	}
	same := func(what string, got []byte) {
		t.Helper()
		if !bytes.Equal(got, content) {
			t.Errorf("%s by %s: %d bytes are not the %d that were sent\n%s", what, s.kubeconfig, len(got), sent, &printed)
		}
	}
	same("exec", do(content, "exec", "--stdin", app, "--", "sh", "-c", "cat; echo problem >&2; exit 3"))
	method := map[string]string{"WebSocket": "GET", "SPDY": "POST"}[s.protocol]
	for _, want := range []string{method + " exec\n", "problem\n", "exit: exit status 3\n"} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("there is no %q in\n%s", want, &printed)
		}
	}
	must(t, os.WriteFile(filepath.Join(s.dir, "there"), content, 0o600))
	do(nil, "cp", "there", app+":/tmp/file")
	do(nil, "cp", app+":/tmp/file", "back")
	back, err := os.ReadFile(filepath.Join(s.dir, "back"))
	if err != nil {
		t.Errorf("%v\n%s", err, &printed)
	}
	same("cp", back)
	must(t, err)
	s.forward(t, &printed, same)
	return printed.String()
}

// forward gets the file over HTTP, twice, through `port-forward`.
func (s *session) forward(t *testing.T, printed io.Writer, same func(what string, got []byte)) {
	t.Helper()
	log := process.NewLog(t)
	child, err := process.Start(s.command(context.WithoutCancel(t.Context()), "-v=6", "port-forward", "pod/"+app, ":8080"),
		nil, log.File)
	must(t, err)
	defer child.Stop(5 * time.Second)
	var address string
	process.Awaiting(t, "port-forward", func(context.Context) error {
		match := forwarding.FindSubmatch(log.Text())
		if match == nil && child.Ended() {
			t.Fatalf("it has ended: %v\n%s", child.Err, log.Text())
		}
		if match == nil {
			return errors.New("it has no port yet")
		}
		address = string(match[1])
		return nil
	})
	fmt.Fprintf(printed, "$ kubectl port-forward pod/%s :8080\n%s", app, upgrades(log.Text()))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/file", nil)
		must(t, err)
		response, err := client.Do(r)
		if err != nil {
			log.Show(t)
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			log.Show(t)
			t.Fatal(err)
		}
		same("port-forward", body)
		fmt.Fprintf(printed, "GET: %s, %s, %d bytes\n", response.Status,
			strings.Join(slices.Sorted(maps.Keys(response.Header)), " "), len(body))
	}
}
