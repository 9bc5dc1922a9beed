package inject

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	k8syaml "sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite testdata from what the code does now")

func options() Options {
	o := Defaults()
	o.Image = "registry.example.com/spillway:v1"
	return o
}

// manifests are those of testdata, by name.
func manifests(t testing.TB) map[string]string {
	t.Helper()
	names, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	all := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(name), ".yaml")] = string(text)
	}
	return all
}

// What is injected is what is in testdata, and what is not concerned is as it was. Taken out again,
// all of it says what it said.
func TestManifests(t *testing.T) {
	for name, text := range manifests(t) {
		t.Run(name, func(t *testing.T) {
			out, done, err := means(t, text)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range done {
				if !d.HasNoPods && d.SkipReason != "" {
					t.Errorf("%s is left: %s", d.Object, d.SkipReason)
				}
			}
			golden := filepath.Join("testdata", name+".injected")
			if *update {
				if err := os.WriteFile(golden, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if out != string(want) {
				t.Errorf("differs from %s; if it is meant to, run go test ./internal/sidecar/inject -update. Got:\n%s", golden, out)
			}
			again, done, err := Manifest(out, options())
			if err != nil || again != out {
				t.Errorf("%v; injected once more it is:\n%s", err, again)
			}
			for _, d := range done {
				if !d.HasNoPods && d.SkipReason != "it is injected already" {
					t.Errorf("%s once more: %q", d.Object, d.SkipReason)
				}
			}
			if same, _, err := Remove(text); err != nil || same != text {
				t.Errorf("%v; without an injection it becomes:\n%s", err, same)
			}
		})
	}
}

// Injecting and uninjecting YAML keep its comments and the order of its lines. Blank lines, indents
// and markers are not kept.
func TestCommentsAndOrderAreKept(t *testing.T) {
	all := manifests(t)
	delete(all, "odd") // its aliases are written out
	for name, text := range all {
		out, _, err := Manifest(text, options())
		if err != nil {
			t.Fatal(err)
		}
		back, _, err := Remove(out)
		if err != nil {
			t.Fatal(err)
		}
		for how, got := range map[string]string{"injected": words(out), "uninjected": words(back)} {
			rest := got
			for line := range strings.Lines(text) {
				_, after, isFound := strings.Cut(rest, words(line))
				if !isFound {
					t.Errorf("%s: the line %q is gone, or not where it was, when it is %s:\n%s", name, line, how, got)
					break
				}
				rest = after
			}
		}
		if words(back) != words(text) {
			t.Errorf("%s has become\n%s", name, back)
		}
	}
}

// words are those of YAML, without markers and directives.
func words(text string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(text), func(word string) bool {
		return slices.Contains([]string{"---", "...", "%YAML", "1.1"}, word)
	}), " ")
}

// pod is a manifest of a Pod with more in its metadata and spec.
func pod(metadata, spec string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: app%s}\nspec: {containers: [{name: app, image: "+
		"app}]%s}\n", metadata, spec)
}

// Whatever cannot be injected is refused with one line that says what to do.
func TestRefused(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		out, done, err := Manifest(text, options())
		if out != "" || len(done) != 0 || err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q %v %v, want %q", text, out, done, err, want)
		}
	}
	container := func(more string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: app}\nspec: {containers: [{name: app, image: app, " + more +
			"}]}\n"
	}
	f(pod("", ", hostNetwork: true"), `pod/app, in the document in line 1: is in the network of its node (hostNetwork)`)
	f("---\n"+pod("", "")+"---\n"+pod("", ", hostNetwork: true"), `in line 6: is in the network`)
	onNode := strings.Replace(jsonPod, `"spec": {`, `"spec": {"hostNetwork": true, `, 1)
	f(jsonPod+onNode, "pod/app, in the document in line 1: is in the network")
	f(jsonPod+"\n"+jsonPod+"\n\n"+onNode+"\n", "pod/app, in the document in line 4: is in the network")
	f("---\n"+jsonPod+"\n---\n"+pod("", ", hostNetwork: true"), "pod/app, in the document in line 3: is in the network")
	f(jsonPod+"\n{", "the document in line 1: not valid JSON: unexpected EOF")
	f(pod("", ", os: {name: windows}"), "is for Windows")
	f(pod("", ", nodeSelector: {kubernetes.io/os: windows}"), "is for Windows")
	f(pod("", ", initContainers: [{name: spillway, image: other}]"), "has a container spillway of its own")
	f(pod("", ", volumes: [{name: spillway-key, emptyDir: {}}]"), "has a volume spillway-key, but no sidecar that "+
		"mounts it: remove it with spillway uninject")
	f(pod("", ", containers: []"), "has no containers")
	f(pod("", ", containers: app"), "its pods cannot be read")
	f(container("env: [{name: KUBERNETES_SERVICE_HOST, value: x}]"), "container app sets KUBERNETES_SERVICE_HOST itself")
	f(container("env: [{name: KUBERNETES_SERVICE_PORT, value: x}]"), "container app sets KUBERNETES_SERVICE_PORT itself")
	f(container("env: [{name: KUBERNETES_SERVICE_PORT_HTTPS, value: x}]"),
		"container app sets KUBERNETES_SERVICE_PORT_HTTPS itself")
	f(container("env: [{name: NO_PROXY, value: 'x,spillway.localhost'}]"),
		"container app has spillway.localhost in NO_PROXY")
	f(pod(", annotations: {spillway.example.com/place: middle}", ""),
		`annotation spillway.example.com/place: "middle": must be auto, first, last or after:NAME`)
	f(pod(", annotations: {spillway.example.com/place: 'after:x'}", ""),
		`has no init container x, behind which the sidecar would be`)
	f(container("ports: [{containerPort: 26464}]"), "container app has port 26464, which is the sidecar's")
	f(pod(`, annotations: {spillway.example.com/inject: "yes"}`, ""),
		`annotation spillway.example.com/inject: "yes": must be enabled or disabled`)
	f(pod(`, annotations: {spillway.example.com/imgae: x}`, ""),
		`annotation spillway.example.com/imgae: "x": there is no such setting`)
	f(pod(`, annotations: {spillway.example.com/image: a b}`, ""),
		`annotation spillway.example.com/image: "a b": must be an image`)
	f(pod(`, annotations: {spillway.example.com/port: "0"}`, ""),
		`annotation spillway.example.com/port: "0": must be a port`)
	f(pod(`, annotations: {spillway.example.com/port: "26464"}`, ""),
		`annotation spillway.example.com/health-port: "26464": must be a port, from 1 to 65535, `+
			`that the sidecar does not use already`)
	f(pod(`, annotations: {spillway.example.com/memory-request: lots}`, ""),
		`annotation spillway.example.com/memory-request: "lots": must be a quantity`)
	f(pod(`, annotations: {spillway.example.com/cpu-limit: "0"}`, ""),
		`annotation spillway.example.com/cpu-limit: "0": must be a quantity above 0`)
	f(pod(`, annotations: {spillway.example.com/cpu-limit: 10m}`, ""),
		`annotation spillway.example.com/cpu-limit: "10m": must not be below what is requested, which is 50m`)
	f(pod(`, annotations: {spillway.example.com/memory-limit: 64Mi}`, ""),
		`annotation spillway.example.com/memory-limit: "64Mi": must not be below what is requested, which is 128Mi`)
	f(pod(`, annotations: {spillway.example.com/allow-host-network: perhaps}`, ""),
		`annotation spillway.example.com/allow-host-network: "perhaps": must be true or false`)
	f(pod(`, annotations: {spillway.example.com/cpu-request: "1e-1000000000"}`, ""),
		`annotation spillway.example.com/cpu-request: "1e-1000000000": must be a quantity`)
	f(pod(`, annotations: {spillway.example.com/image: "a\u00a0"}`, ""), "must be an image")
	f(pod(`, annotations: {spillway.example.com/flags: "--`+strings.Repeat("a", 1<<20)+`"}`, ""),
		"annotation spillway.example.com/flags: is 1048578 bytes long: must be at most 4096")
	f("a: [", "the document in line 1: not valid YAML: line 1:")
	f("a: 1\n---\nb: 1\n- c\n", "the document in line 2: not valid YAML: line")
	f("a: 1\n...\nb: 2\n", "another document follows without a line ---")
	f("a: \xff\n", "not valid UTF-8")
}

// What does not need a sidecar, or must not have one, is left as it is.
func TestLeft(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		out, done, err := Manifest(text, options())
		if err != nil || out != text || len(done) != 1 || !strings.Contains(done[0].SkipReason, want) {
			t.Errorf("%s: %q %v %v, want %q", text, out, done, err, want)
		}
	}
	f(pod(", annotations: {spillway.example.com/inject: disabled}", ", hostNetwork: true"),
		"spillway.example.com/inject is disabled")
	f(pod(", labels: {spillway.example.com/inject: disabled}", ""), "spillway.example.com/inject is disabled")
	f(pod("", ", automountServiceAccountToken: false"), "given no token of a service account")
}

// A document of a kind without pods stays as it is, byte for byte.
func TestUntouched(t *testing.T) {
	for _, text := range []string{
		"", "\n", "# nothing\n", "---\n", "---\n---\n", "a: 1", "kind: [1, 2]\n", "[1, 2]\n", "text\n",
		"kind: List\nitems: 3\n", "kind: List\napiVersion: v1\nitems: [1, null]\n",
		// of another API group
		"kind: Deployment\napiVersion: example.com/v1\nspec: {template: {spec: {containers: [{name: a}]}}}\n",
		"kind: Deployment\napiVersion: apps/v1\nspec: {}\n",
		"kind: PodList\napiVersion: v1\nitems: []\n",
	} {
		out, done, err := Manifest(text, options())
		hasPods := func(r ObjectResult) bool { return !r.HasNoPods }
		if err != nil || out != text || slices.ContainsFunc(done, hasPods) {
			t.Errorf("%q becomes %q, %v, %v", text, out, done, err)
		}
	}
}

// templateOf is what is read of a template.
func templateOf(t *testing.T, of *corev1.PodTemplateSpec) *Template {
	t.Helper()
	text, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	template, err := decodeTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// Annotations take precedence over the options.
func TestAnnotations(t *testing.T) {
	var checked []string
	o := options()
	o.Flags = []string{"--log-level=debug"}
	o.CheckFlags = func(flags []string) error {
		checked = flags
		return nil
	}
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{HostNetwork: true,
		Containers: []corev1.Container{{Name: "app"}}}}
	template.Annotations = map[string]string{
		"spillway.example.com/image": "other:2", "spillway.example.com/resources": "pods,nodes",
		"spillway.example.com/flags": " --history-bytes=8Mi  --disable-http2-serving ", "spillway.example.com/port": "1443",
		"spillway.example.com/health-port": "1444", "spillway.example.com/cpu-request": "",
		"spillway.example.com/cpu-limit": "2", "spillway.example.com/memory-request": "32Mi",
		"spillway.example.com/memory-limit": "64Mi", "spillway.example.com/allow-host-network": "true",
		OptAnnotation: OptIn, "example.com/other": "x",
	}
	patch, _, err := Plan(Pod{Template: templateOf(t, template)}, o)
	if err != nil {
		t.Fatal(err)
	}
	var c corev1.Container
	for _, operation := range patch {
		if operation.Path == "/spec/initContainers" {
			c = operation.Value.([]corev1.Container)[0]
		}
	}
	wantFlags := []string{"--resources=pods,nodes", "--log-level=debug", "--history-bytes=8Mi", "--disable-http2-serving"}
	if c.Image != "other:2" || !reflect.DeepEqual(c.Args[5:], wantFlags) || !reflect.DeepEqual(checked, wantFlags) {
		t.Errorf("image %s, args %v, checked %v", c.Image, c.Args, checked)
	}
	if c.Args[3] != "--listen-tls=127.0.0.1:1443" || c.Args[4] != "--metrics-listen=:1444" ||
		c.StartupProbe.HTTPGet.Port.IntValue() != 1444 || c.LivenessProbe.HTTPGet.Port.IntValue() != 1444 {
		t.Errorf("ports: %v", c.Args)
	}
	if len(c.Resources.Requests) != 1 || c.Resources.Requests.Memory().String() != "32Mi" ||
		len(c.Resources.Limits) != 2 || c.Resources.Limits.Memory().String() != "64Mi" ||
		c.Resources.Limits.Cpu().String() != "2" {
		t.Errorf("resources: %v", c.Resources)
	}
	if last := patch[len(patch)-2]; !reflect.DeepEqual(last.Value,
		[]Variable{{Name: "KUBERNETES_SERVICE_HOST", Value: "127.0.0.1"},
			{Name: "KUBERNETES_SERVICE_PORT", Value: "1443"}, {Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: "1443"}}) {
		t.Errorf("variables: %v", last)
	}
	o.CheckFlags = func([]string) error { return errors.New("--x: no such flag") }
	if _, _, err := Plan(Pod{Template: templateOf(t, template)}, o); err == nil ||
		err.Error() != "the sidecar's flags: --x: no such flag" {
		t.Error(err)
	}
}

// TestTheDocumentsNameEveryAnnotation compares the table of annotations in docs/clients.md with the
// settings.
func TestTheDocumentsNameEveryAnnotation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	row := regexp.MustCompile("(?m)^\\| `(" + regexp.QuoteMeta(prefix) + "[a-z-]+)` \\|")
	for _, found := range row.FindAllStringSubmatch(string(text), -1) {
		got = append(got, found[1])
	}
	want := []string{OptAnnotation, InjectedAnnotation, NotInjectedAnnotation}
	for _, s := range settings {
		if !s.isFlagOnly {
			want = append(want, s.name.annotation())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the documents name %v, and the settings are %v", got, want)
	}
}

// A pod that the API server has admitted mounts its token already: the sidecar takes that over, and
// the others get theirs from it.
func TestAdmitted(t *testing.T) {
	o := options()
	token := corev1.VolumeMount{Name: "kube-api-access-abcde", MountPath: accountDir, ReadOnly: true}
	data := corev1.VolumeMount{Name: "data", MountPath: "/data"}
	before := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "prepare", VolumeMounts: []corev1.VolumeMount{token}}},
		Containers: []corev1.Container{
			{Name: "app", VolumeMounts: []corev1.VolumeMount{data, token}, Env: []corev1.EnvVar{{Name: "A", Value: "b"}}},
			{Name: "helper", VolumeMounts: []corev1.VolumeMount{token}},
		},
		Volumes: []corev1.Volume{{Name: "data"}, {Name: token.Name}},
	}}
	before.Name = "app"
	patch, _, err := Plan(Pod{Template: templateOf(t, &before), IsAdmitted: true}, o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = applied(text, patch); err != nil {
		t.Fatal(err)
	}
	var after corev1.PodTemplateSpec
	if err := json.Unmarshal(text, &after); err != nil {
		t.Fatal(err)
	}
	sidecar := after.Spec.InitContainers[0]
	if sidecar.Name != Container || *sidecar.RestartPolicy != corev1.ContainerRestartPolicyAlways ||
		!reflect.DeepEqual(sidecar.VolumeMounts[2], token) {
		t.Errorf("sidecar: %v", sidecar)
	}
	own := corev1.VolumeMount{Name: FilesVolume, MountPath: accountDir, ReadOnly: true}
	for _, c := range []corev1.Container{after.Spec.InitContainers[1], after.Spec.Containers[0],
		after.Spec.Containers[1]} {
		i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == accountDir })
		if i < 0 || !reflect.DeepEqual(c.VolumeMounts[i], own) || c.Env[0].Name != hostVariable ||
			c.Env[1].Name != portVariable {
			t.Errorf("%s: %v %v", c.Name, c.VolumeMounts, c.Env)
		}
	}
	if app := after.Spec.Containers[0]; !reflect.DeepEqual(app.VolumeMounts[0], data) || len(app.VolumeMounts) != 2 ||
		len(app.Env) != 4 {
		t.Errorf("app: %v", app)
	}
	if len(after.Spec.Volumes) != 4 || after.Annotations[InjectedAnnotation] != "true" {
		t.Errorf("volumes %v, annotations %v", after.Spec.Volumes, after.Annotations)
	}
	var left *SkippedError
	if _, _, err := Plan(Pod{Template: templateOf(t, &after), IsAdmitted: true}, o); !errors.As(err, &left) {
		t.Errorf("once more: %v", err)
	}
	none := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	if _, _, err := Plan(Pod{Template: templateOf(t, &none), IsAdmitted: true}, o); !errors.As(err, &left) {
		t.Errorf("without a token: %v", err)
	}
}

// A template's metadata keeps what Spillway does not read, such as finalizers.
func TestMetadataIsNotReplaced(t *testing.T) {
	const text = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: a\nspec:\n  template:\n    metadata:\n" +
		"      finalizers:\n      - example.com/kept\n    spec:\n      containers:\n      - image: app\n        name: app\n"
	out, _, err := Manifest(text, options())
	if err != nil || !strings.Contains(out, "- example.com/kept\n") || !strings.Contains(out, InjectedAnnotation) {
		t.Errorf("%v\n%s", err, out)
	}
	if back, _, err := Remove(out); err != nil || back != text {
		t.Errorf("%v\n%s", err, back)
	}
}

// A pod with a sidecar is known by that, whatever tools have dropped or copied: it is not injected
// again, and uninject takes the sidecar out.
func TestInjectedIsKnownByItsSidecar(t *testing.T) {
	const text = "apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    app: a\n  name: app\nspec:\n" +
		"  containers:\n  - image: app\n    name: app\n"
	out, _, err := Manifest(text, options())
	if err != nil {
		t.Fatal(err)
	}
	change := func(do func(pod *corev1.Pod)) string {
		var pod corev1.Pod
		if err := k8syaml.Unmarshal([]byte(out), &pod); err != nil {
			t.Fatal(err)
		}
		do(&pod)
		changed, err := k8syaml.Marshal(&pod)
		if err != nil {
			t.Fatal(err)
		}
		return string(changed)
	}
	removed := func(changed string) corev1.Pod {
		t.Helper()
		back, done, err := Remove(changed)
		if err != nil || len(done) != 1 || done[0].SkipReason != "" {
			t.Fatalf("%v, %+v", err, done)
		}
		var pod corev1.Pod
		if err := k8syaml.Unmarshal([]byte(back), &pod); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	for name, c := range map[string]struct {
		do   func(pod *corev1.Pod)
		left string // why it is not injected; or part of the error
	}{
		"kubectl debug --copy-to --profile=general": {func(pod *corev1.Pod) {
			pod.Annotations, pod.Labels, pod.Name = nil, nil, "copy"
			pod.Spec.InitContainers[0].StartupProbe, pod.Spec.InitContainers[0].LivenessProbe = nil, nil
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "debugger", Image: "busybox"})
		}, "it is injected already"},
		"another image and more init containers": {func(pod *corev1.Pod) {
			pod.Annotations = nil
			pod.Spec.InitContainers[0].Image = "other"
			pod.Spec.InitContainers = append([]corev1.Container{{Name: "first"}}, pod.Spec.InitContainers...)
		}, "it is injected already"},
		"kubectl debug --keep-init-containers=false": {func(pod *corev1.Pod) {
			pod.Annotations, pod.Spec.InitContainers = nil, nil
		}, "has a volume spillway-serviceaccount, but no sidecar that mounts it"},
		"the same with --keep-annotations": {func(pod *corev1.Pod) { pod.Spec.InitContainers = nil },
			"has a volume spillway-serviceaccount, but no sidecar that mounts it"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := change(c.do)
			again, done, err := Manifest(changed, options())
			switch {
			case err != nil && strings.Contains(err.Error(), c.left):
			case err != nil || again != changed || len(done) != 1 || done[0].SkipReason != c.left:
				t.Errorf("%v, %+v, want %q", err, done, c.left)
			}
			pod := removed(changed)
			if len(pod.Spec.Volumes) > 0 || len(pod.Annotations) > 0 || len(pod.Spec.Containers[0].Env) > 0 ||
				len(pod.Spec.Containers[0].VolumeMounts) > 0 || slices.ContainsFunc(pod.Spec.InitContainers,
				func(c corev1.Container) bool { return c.Name == Container }) {
				t.Errorf("what is left: %+v", pod)
			}
		})
	}
	// Of a pod whose annotations were copied alone, nothing is injected yet.
	copied := strings.Replace(text, "  name: app\nspec",
		"  name: app\n  annotations:\n    spillway.example.com/injected: \"true\"\nspec", 1)
	again, _, err := Manifest(copied, options())
	if err != nil || strings.Count(again, InjectedAnnotation) != 1 || !strings.Contains(again, FilesVolume) {
		t.Errorf("with the annotation alone: %v\n%s", err, again)
	}
}

// uninject removes the marks of the webhook, and of a pod that it did not inject nothing else: a
// container or a variable of the pod may have the name of one that injection adds.
func TestRemoveTakesMarksAway(t *testing.T) {
	const spec = "spec:\n  initContainers:\n  - name: spillway\n    image: other\n  containers:\n  - name: app\n" +
		"    image: app\n    env:\n    - name: KUBERNETES_SERVICE_HOST\n      value: x\n"
	for metadata, want := range map[string]string{
		"  name: app\n  annotations:\n    spillway.example.com/not-injected: a reason\n": "  name: app\n",
		"  name: app\n  annotations:\n    a: b\n    spillway.example.com/not-injected: a reason\n" +
			"  labels:\n    spillway.example.com/injected: \"true\"\n": "  name: app\n  annotations:\n    a: b\n",
		"  name: app\n  labels:\n    a: b\n    spillway.example.com/injected: \"true\"\n": "" +
			"  name: app\n  labels:\n    a: b\n",
	} {
		const head = "apiVersion: v1\nkind: Pod\nmetadata:\n"
		back, done, err := Remove(head + metadata + spec)
		if err != nil || len(done) != 1 || !reflect.DeepEqual(object(t, back), object(t, head+want+spec)) {
			t.Errorf("%v, %+v: %s", err, done, back)
		}
		if again, _, err := Remove(back); err != nil || again != back {
			t.Errorf("once more: %v: %s", err, again)
		}
	}
	// A pod of the webhook, read from the API server, is as it was.
	text := podWith("  containers:\n  - name: app\n    image: app\n    volumeMounts:\n    - name: kube-api-access-x\n" +
		"      mountPath: " + accountDir + "\n")
	before := object(t, text)
	whole, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	template, err := decodeTemplate(whole)
	if err != nil {
		t.Fatal(err)
	}
	patch, _, err := Plan(Pod{Template: template, IsAdmitted: true}, options())
	if err != nil {
		t.Fatal(err)
	}
	if whole, err = applied(whole, patch); err != nil || strings.Count(string(whole), InjectedAnnotation) != 2 {
		t.Fatalf("%v: %s", err, whole)
	}
	back, _, err := Remove(string(whole))
	if err != nil || strings.Contains(back, "spillway") {
		t.Errorf("%v: %s", err, back)
	}
}

// A manifest that was copied from a pod that was not injected is injected without the reason.
func TestInjectionDropsTheReason(t *testing.T) {
	for _, annotations := range []string{"    spillway.example.com/not-injected: it was full\n",
		"    a: b\n    spillway.example.com/not-injected: it was full\n"} {
		out, _, err := Manifest(block("  annotations:\n"+annotations), options())
		if err != nil || strings.Contains(out, NotInjectedAnnotation) || !strings.Contains(out, InjectedAnnotation) ||
			strings.Contains(annotations, "a: b") != strings.Contains(out, "    a: b\n") {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// A pod whose annotations are as large as the API server takes is injected without one more.
func TestAnnotationsAreFull(t *testing.T) {
	const limit = 256 << 10
	for size, marked := range map[int]bool{limit - len("a") - len(InjectedAnnotation+"true"): true,
		limit - len("a"): false} {
		template := templateOf(t, podOf("", ""))
		template.Annotations = map[string]string{"a": strings.Repeat("x", size)}
		patch, _, err := Plan(Pod{Template: template}, options())
		if err != nil {
			t.Fatal(err)
		}
		if found := strings.HasPrefix(patch[0].Path, "/metadata"); found != marked {
			t.Errorf("with %d bytes: %t, %s", size, found, patch[0].Path)
		}
	}
}

// uninject removes the sidecar, and nothing else, from a manifest that was edited since, or read
// from the API server.
func TestRemoveFromChanged(t *testing.T) {
	for name, text := range manifests(t) {
		out, _, err := Manifest(text, options())
		if err != nil {
			t.Fatal(err)
		}
		for how, change := range map[string]func(map[string]any) ([]byte, error){
			"as YAML": func(o map[string]any) ([]byte, error) { return k8syaml.Marshal(o) },
			"as JSON": func(o map[string]any) ([]byte, error) { return json.MarshalIndent(o, "", "    ") },
		} {
			for i, part := range documents(out) {
				was, now := object(t, documents(text)[i]), object(t, part)
				if now == nil {
					continue
				}
				for _, o := range []map[string]any{was, now} {
					o["added"] = "later"
				}
				changed, err := change(now)
				if err != nil {
					t.Fatal(err)
				}
				back, _, err := Remove(string(changed))
				if err != nil {
					t.Fatal(err)
				}
				if got := object(t, back); !reflect.DeepEqual(tidy(got), tidy(was)) {
					t.Errorf("%s, %s: number %d becomes\n%s", name, how, i, back)
				}
			}
		}
	}
}

func object(t *testing.T, text string) (o map[string]any) {
	t.Helper()
	if err := k8syaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// Whatever can be injected means what it did and has a sidecar, can be had back, and is injected
// once.
func FuzzRoundTrip(f *testing.F) {
	for _, text := range manifests(f) {
		for i, part := range documents(text) {
			f.Add(part, uint64(0))
			f.Add(part, uint64(i+1))
			f.Add(part, uint64(i+2)<<32)
		}
	}
	f.Add(podWith(ownToken), uint64(0))
	for _, exceptions := range []string{"", "    - {name: NO_PROXY, value: a}\n",
		"    - name: NO_PROXY\n      value: 'a''b' # c\n", "    - name: no_proxy\n      value: |\n        a\n"} {
		f.Add(podWith("  containers:\n  - name: app\n    env:\n    - name: HTTPS_PROXY\n      value: p\n"+exceptions),
			uint64(0))
	}
	f.Add(podWith("  initContainers:\n  - name: istio-proxy\n    restartPolicy: Always\n  - name: a\n  containers:\n  - "+
		"name: app\n    resources: {limits: {cpu: 1, memory: 1Gi}}\n"), uint64(0))
	for _, text := range []string{"x: &p Pod\nkind: *p\n", "\"\\x6bind\": Pod\n", "!!binary a2luZA==: Pod\n",
		"? kind\n: Pod\n", "<<: {kind: Pod}\n"} {
		f.Add(text+"apiVersion: v1\nspec:\n  containers:\n  - &c\n    name: app\n    <<: {image: app}\n  - *c\n", uint64(0))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if text = edited(text, seed); strings.Contains(text, "spillway") {
			return // it may be injected by hand, and half
		}
		out, done, err := means(t, text)
		if err != nil {
			return
		}
		again, twice, err := Manifest(out, options())
		if err != nil || again != out || len(twice) != len(done) {
			t.Fatalf("%v; %q becomes %q", err, out, again)
		}
	})
}

// edited is a text of which some lines were changed in ways that YAML may survive. Seed 0 changes
// nothing.
func edited(text string, seed uint64) string {
	random := rand.New(rand.NewPCG(seed, seed))
	lines := strings.SplitAfter(text, "\n")
	for range seed % 8 {
		i := random.IntN(len(lines))
		indent := lines[i][:len(lines[i])-len(strings.TrimLeft(lines[i], " "))]
		switch random.IntN(10) {
		case 0:
			lines[i] = ""
		case 1:
			lines[i] = indent + "# a comment\n" + lines[i]
		case 2:
			lines[i] = "# a comment\n" + lines[i]
		case 3:
			lines[i] = "\n" + lines[i]
		case 4:
			lines[i] = strings.TrimSuffix(lines[i], "\n") + "   # a comment\n"
		case 5:
			lines[i] = strings.TrimSuffix(lines[i], "\n") + "\r\n"
		case 6:
			lines[i] = strings.Replace(lines[i], "- ", "-   ", 1)
		case 7:
			key, _, _ := strings.Cut(lines[i], ":")
			lines[i] = key + []string{":", ": {}", ": []", ": null", ": ~", ": &a", ": !!map", ": |\n" + indent + "    text",
				": {a: b}", ": \"a\n" + indent + "  b\""}[random.IntN(10)] + "\n"
		case 8:
			lines[i] += lines[random.IntN(len(lines))]
		case 9:
			lines = lines[:i+1]
		}
	}
	return strings.Join(lines, "")
}
