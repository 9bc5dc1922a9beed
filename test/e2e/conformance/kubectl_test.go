package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/exchange"
	"spillway/test/framework/process"
)

// testKubectl compares what kubectl prints both ways.
func (s *suite) testKubectl(t *testing.T) {
	t.Run("reads", s.testKubectlReads)
	t.Run("writes", s.testKubectlWrites)
	t.Run("watches", s.testKubectlWatches)
}

// kubectlOutput is all that a kubectl said.
type kubectlOutput struct {
	out, err string
	failed   bool
}

// kubectl runs kubectl against one side.
func (s *suite) kubectl(t *testing.T, e *endpoint, input string, args ...string) kubectlOutput {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	var out, errs bytes.Buffer
	p, err := s.cp.StartKubectl(controlplane.Streams{In: strings.NewReader(input), Out: &out, Err: &errs},
		append([]string{"--kubeconfig=" + e.kubeconfig(t)}, args...)...)
	must(t, err)
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	err = p.Wait()
	must(t, ctx.Err())
	where := strings.NewReplacer(e.Base, "SERVER", strings.TrimPrefix(strings.TrimPrefix(e.Base, "https://"), "http://"),
		"SERVER")
	return kubectlOutput{where.Replace(out.String()), where.Replace(errs.String()), err != nil}
}

func (s *suite) testKubectlReads(t *testing.T) {
	for _, line := range []string{
		"get configmaps -n c1 -o name",
		"get configmaps -n c1 -o yaml",
		"get configmaps -n o -o name --chunk-size=2",
		"get configmaps -A -l app=x -o jsonpath={.items[*].metadata.uid}",
		"get pods -A --field-selector=spec.nodeName=n1 -o json",
		"get pods,services,deployments -n c1 -o name",
		"get widgets -n c1 -o json",
		"get widgets.v1beta1.conformance.example.com w1 -n c1 -o yaml",
		"get configmap a -n c1 -o json",
		"get endpoints -n c1 -o name",
		"get nodes --no-headers -o custom-columns=N:.metadata.name,U:.spec.unschedulable",
		"get configmap zz -n c1",
		"get nonsense",
		"get configmaps -n c1 --field-selector=spec.x=1",
		"get configmaps -l a===b",
		"describe configmap a -n c1",
		"describe pod p3 -n c1",
		"describe widget w1 -n c1",
		"get --raw /api/v1/namespaces/c1/configmaps/a?resourceVersion=0",
		"api-resources --api-group=conformance.example.com",
		"explain widgets.spec",
		"auth can-i list pods",
		"exec -n c1 p3 -- true",
		"attach -n c1 p3",
		"logs -n c1 p3",
		"port-forward -n c1 pod/p3 :80",
		"wait -n c1 --for=jsonpath={.data.k}=1 configmap/a --timeout=60s",
		"wait -n c1 --for=create configmap/a --timeout=60s",
	} {
		t.Run(line, func(t *testing.T) {
			direct := s.kubectl(t, s.direct, "", strings.Fields(line)...)
			proxied := s.kubectl(t, s.plain, "", strings.Fields(line)...)
			if proxied != direct {
				t.Fatalf("kubectl %s:\n direct  %+v\n proxied %+v", line, direct, proxied)
			}
			s.show(t, "W-193 W-195", upstream)
		})
	}
}

const manifest = `apiVersion: v1
kind: ConfigMap
metadata: {name: applied, namespace: c2, labels: {from: kubectl}}
data: {k: "1"}
---
apiVersion: conformance.example.com/v1
kind: Widget
metadata: {name: applied, namespace: c2}
spec: {color: red}
`

// testKubectlWrites does the same both ways, and expects the same words.
func (s *suite) testKubectlWrites(t *testing.T) {
	var said [2]string
	for i, e := range []*endpoint{s.direct, s.plain} {
		for _, step := range []struct{ input, line string }{
			{manifest, "apply -f -"},
			{manifest, "apply -f -"},
			{strings.Replace(manifest, `"1"`, `"2"`, 1), "apply -f -"},
			{strings.Replace(manifest, `"1"`, `"3"`, 1), "apply --server-side --force-conflicts -f -"},
			{manifest, "diff -f -"},
			{"", "label configmap applied -n c2 more=yes"},
			{"", "annotate widget applied -n c2 more=yes"},
			{"", `patch widget applied -n c2 --type=merge -p {"spec":{"size":7}}`},
			{"", "get configmap applied -n c2 -o jsonpath={.data.k}{.metadata.labels}"},
			{"", "get widget applied -n c2 -o jsonpath={.spec}{.metadata.generation}"},
			{"", "wait widget applied -n c2 --for=jsonpath={.spec.size}=7 --timeout=60s"},
			{"", "delete configmap applied -n c2"},
			{"", "delete widget applied -n c2 --wait=true"},
			{"", "wait widget applied -n c2 --for=delete --timeout=60s"},
			{"", "delete configmap applied -n c2"},
		} {
			p := s.kubectl(t, e, step.input, strings.Fields(step.line)...)
			said[i] += fmt.Sprintf("kubectl %s: %t\n%s%s\n", step.line, p.failed, withoutDiffNames(p.out), p.err)
		}
	}
	if said[0] != said[1] {
		t.Fatal(exchange.FirstDifference([]byte(said[0]), []byte(said[1])),
			exchange.FirstDifference([]byte(said[1]), []byte(said[0])))
	}
	s.show(t, "W-195", upstream)
}

// withoutDiffNames takes out the lines of `kubectl diff` that name temporary files and changing
// versions.
func withoutDiffNames(out string) string {
	var kept []string
	for line := range strings.Lines(out) {
		varies := strings.HasPrefix(line, "diff ") || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "+++") ||
			strings.Contains(line, "uid:") || strings.Contains(line, "resourceVersion:") ||
			strings.Contains(line, "imestamp:") || strings.Contains(line, "time:")
		if !varies {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// testKubectlWatches leaves several kubectl watching on either side while something happens.
func (s *suite) testKubectlWatches(t *testing.T) {
	served := s.plain.watches(t)
	ctx, client := t.Context(), s.client.CoreV1().ConfigMaps("c2")
	s.put(t, configMap("c2", "watched", "x", "0"))
	commands := []string{
		"get configmaps -n c2 -w -o jsonpath={.metadata.name}@{.metadata.resourceVersion}:{.data.k}{\"\\n\"} -l app=x",
		"get configmaps -n c2 --watch-only --output-watch-events -o name",
		"get configmap watched -n c2 -w -o jsonpath={.metadata.name}@{.metadata.resourceVersion}{\"\\n\"}",
		"get configmaps -A -w -o name",
	}
	outputs := make([][3]*processOutput, len(commands))
	for i, line := range commands {
		for j, e := range []*endpoint{s.direct, s.plain, s.secure} {
			out := &processOutput{}
			outputs[i][j] = out
			p, err := s.cp.StartKubectl(controlplane.Streams{Out: out, Err: out},
				append([]string{"--kubeconfig=" + e.kubeconfig(t)}, strings.Fields(line)...)...)
			must(t, err)
			t.Cleanup(p.Kill)
		}
	}
	// Each has begun to watch when it has printed a change made after its list; so there is one until
	// all have.
	for n, told := 0, 0; told < 3*len(commands); n++ {
		s.put(t, configMap("c2", "watched", "x", fmt.Sprint(n)))
		told = 0
		for _, sides := range outputs {
			for _, out := range sides {
				if strings.Contains(out.text(), "watched") {
					told++
				}
			}
		}
		must(t, ctx.Err())
	}
	if n := s.secure.metric(t, "spillway_http2_connections"); n < len(commands) { // kubectl chooses it where it is offered
		t.Errorf("%d HTTP/2 connections from %d kubectls", n, len(commands))
	}
	s.put(t, configMap("c2", "first", "x", "1"))
	s.put(t, configMap("c2", "first", "y", "2"))
	must(t, client.Delete(ctx, "first", metav1.DeleteOptions{}))
	version := s.put(t, configMap("c2", "watched", "x", "final"))
	s.put(t, configMap("c2", "last", "x", "1"))
	for i := range commands {
		s.sameOutput(t, commands[i], outputs[i], version)
	}
	if rise := s.plain.watches(t) - served; late.Prompt() && rise < len(commands) {
		t.Errorf("%d watches were served from memory, want %d", rise, len(commands))
	}
}

// sameOutput waits until both have printed the end of the story, and compares from where the story
// began.
func (s *suite) sameOutput(t *testing.T, line string, outputs [3]*processOutput, version string) {
	t.Helper()
	begin, end := "first", "last"
	if strings.Contains(line, "configmap watched") {
		begin, end = version, version
	}
	var stories [3]string
	for i, out := range outputs {
		process.Awaiting(t, "kubectl "+line, func(context.Context) error {
			story := out.text()
			from := strings.Index(story, begin)
			if from < 0 || !strings.Contains(story[from:], end) || !strings.HasSuffix(story, "\n") {
				return fmt.Errorf("it has said %q", story)
			}
			stories[i] = story[from:]
			return nil
		})
	}
	if stories[0] != stories[1] || stories[0] != stories[2] {
		t.Errorf("kubectl %s:\n direct %q\n plain  %q\n tls    %q", line, stories[0], stories[1], stories[2])
		return
	}
	s.show(t, "W-193 W-195", memory)
}

// processOutput is what a process has written so far.
type processOutput struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*processOutput)(nil)

func (g *processOutput) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.Write(b)
}

func (g *processOutput) text() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.String()
}
