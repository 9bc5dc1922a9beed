package inject

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	k8syaml "sigs.k8s.io/yaml"
)

// injected is a pod after Manifest, with the notes about it. It leads back to what it was.
func injected(t *testing.T, text string) (pod corev1.Pod, out string, done ObjectResult) {
	t.Helper()
	out, all, err := Manifest(text, options())
	if err != nil {
		t.Fatal(err)
	}
	if back, _, err := Remove(out); err != nil || !reflect.DeepEqual(tidy(object(t, back)), tidy(object(t, text))) {
		t.Errorf("uninjected: %v\n%s", err, back)
	}
	if err := k8syaml.Unmarshal([]byte(out), &pod); err != nil {
		t.Fatal(err)
	}
	return pod, out, all[0]
}

func podWith(spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: app\nspec:\n" + spec
}

func envOf(c corev1.Container) map[string]string {
	all := map[string]string{}
	for _, e := range c.Env {
		all[e.Name] = e.Value
	}
	return all
}

// A container with a proxy reaches the sidecar without it, and what excepted other addresses goes
// on to.
func TestNoProxyExceptsTheSidecar(t *testing.T) {
	for name, c := range map[string]struct {
		env  string
		want map[string]string
		note string
	}{
		"no proxy": {"    - name: A\n      value: b\n", map[string]string{"NO_PROXY": "", "no_proxy": ""}, ""},
		"alone": {"    - name: HTTPS_PROXY\n      value: http://proxy:3128\n",
			map[string]string{"NO_PROXY": excepted, "no_proxy": excepted}, ""},
		"with exceptions": {"    - name: https_proxy\n      value: http://proxy:3128\n    - name: no_proxy\n      value: " +
			".svc,10.0.0.0/8 # ours\n",
			map[string]string{"NO_PROXY": "", "no_proxy": ".svc,10.0.0.0/8," + excepted}, ""},
		"quoted": {"    - {name: B, value: c}\n    - name: HTTP_PROXY\n      value: http://proxy:3128\n    - name: " +
			"NO_PROXY\n      value: \".svc\"\n    - name: no_proxy\n      value: ''\n",
			map[string]string{"NO_PROXY": ".svc," + excepted, "no_proxy": "," + excepted}, ""},
		"loopback": {"    - name: HTTPS_PROXY\n      value: http://proxy:3128\n    - name: NO_PROXY\n      value: " +
			"localhost, 127.0.0.1\n",
			map[string]string{"NO_PROXY": "localhost, 127.0.0.1", "no_proxy": ""}, ""},
		"all": {"    - name: HTTPS_PROXY\n      value: http://proxy:3128\n    - name: NO_PROXY\n      value: '*'\n",
			map[string]string{"NO_PROXY": "*"}, ""},
		"from elsewhere": {"    - name: HTTPS_PROXY\n      value: http://proxy:3128\n    - name: NO_PROXY\n      " +
			"valueFrom:\n        configMapKeyRef: {name: a, key: b}\n",
			map[string]string{"NO_PROXY": "", "no_proxy": ""}, "takes NO_PROXY from elsewhere"},
		"all from elsewhere": {"    - name: HTTPS_PROXY\n      value: http://proxy:3128\n    envFrom:\n    - configMapRef: " +
			"{name: a}\n", map[string]string{"NO_PROXY": ""}, "(envFrom)"},
	} {
		t.Run(name, func(t *testing.T) {
			pod, out, done := injected(t, podWith("  containers:\n  - name: app\n    image: app\n    env:\n"+c.env))
			env := envOf(pod.Spec.Containers[0])
			for variable, want := range c.want {
				if env[variable] != want {
					t.Errorf("%s=%q, want %q in\n%s", variable, env[variable], want, out)
				}
			}
			if env[httpsVariable] != "26443" || env[portVariable] != "26443" || env[hostVariable] != loopback {
				t.Errorf("led by %v", env)
			}
			if note := strings.Join(done.Notes, "; "); !strings.Contains(note, c.note) || c.note == "" && note != "" {
				t.Errorf("notes %q, want %q", note, c.note)
			}
			if strings.Count(out, "#") != strings.Count(c.env, "#") {
				t.Errorf("its comments are gone:\n%s", out)
			}
		})
	}
}

const ownToken = `  automountServiceAccountToken: false
  containers:
  - name: app
    image: app
    volumeMounts:
    - name: mine
      mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      readOnly: true
  - name: other
    image: other
  volumes:
  - name: mine
    projected:
      sources:
      - serviceAccountToken: {path: token, expirationSeconds: 600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
`

// A pod that mounts its service account itself has a sidecar that is given the same volume; a
// container without the token stays without.
func TestOwnTokenIsGivenToTheSidecar(t *testing.T) {
	text := podWith(ownToken)
	pod, out, _ := injected(t, text)
	mounts := pod.Spec.InitContainers[0].VolumeMounts
	if m := mounts[len(mounts)-1]; m.Name != "mine" || m.MountPath != accountDir {
		t.Errorf("the sidecar mounts %+v", m)
	}
	if m := pod.Spec.Containers[0].VolumeMounts; len(m) != 1 || m[0].Name != FilesVolume {
		t.Errorf("the program mounts %+v", m)
	}
	if c := pod.Spec.Containers[1]; len(c.VolumeMounts)+len(c.Env) > 0 {
		t.Errorf("the other has %+v", c)
	}
	// Changed since then, it gets back what it had.
	back, _, err := Remove(strings.Replace(out, "image: other", "image: changed", 1))
	if err != nil {
		t.Fatal(err)
	}
	var now corev1.Pod
	if err := k8syaml.Unmarshal([]byte(back), &now); err != nil {
		t.Fatal(err)
	}
	if m := now.Spec.Containers[0].VolumeMounts; len(m) != 1 || m[0].Name != "mine" || !m[0].ReadOnly ||
		len(now.Spec.Volumes) != 1 || len(now.Spec.InitContainers) != 0 {
		t.Errorf("of what was changed remains\n%s", back)
	}
}

// What is no service account is not given to the sidecar: the pod is left as it is, and the others
// of its manifest are not.
func TestPodWithOtherVolumeIsLeft(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"path: token,", "path: token, audience: vault,"}: "whose token is for vault",
		{"path: token,", "path: jwt,"}: "with ca.crt, jwt, namespace " +
			"instead of",
		{"name: kube-root-ca.crt, items", "name: other, items"}:                           "",
		{"    projected:", "    csi:"}:                                                    "which is not projected",
		{"{name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}", "{name: all}"}: "with all of config map all",
		{"      readOnly: true", "      subPath: x"}:                                      "and of that a part",
		{"serviceAccountToken: {path: token, expirationSeconds: 600}", "secret: {}"}:      "with more than a service account",
	} {
		text := podWith(strings.Replace(ownToken, change[0], change[1], 1)) + "---\n" +
			podWith("  containers:\n  - name: app\n    image: app\n")
		out, done, err := Manifest(text, options())
		if err != nil || len(done) != 2 || done[1].SkipReason != "" || !strings.Contains(done[0].SkipReason, want) ||
			(done[0].SkipReason == "") != (want == "") {
			t.Errorf("%s: %v %+v, want %q", change[1], err, done, want)
		}
		if !strings.Contains(out, InjectedAnnotation) {
			t.Errorf("%s: the other pod is not injected", change[1])
		}
	}
}

// In a manifest it is not known whether the service account mounts its token: the sidecar has a
// volume of its own.
func TestSidecarBringsItsToken(t *testing.T) {
	pod, _, _ := injected(t, podWith("  containers:\n  - name: app\n    image: app\n"))
	mounts := pod.Spec.InitContainers[0].VolumeMounts
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == TokenVolume })
	if m := mounts[len(mounts)-1]; m.Name != TokenVolume || m.MountPath != accountDir || i < 0 ||
		len(pod.Spec.Volumes[i].Projected.Sources) != 3 {
		t.Errorf("%+v %+v", mounts, pod.Spec.Volumes)
	}
}

// The sidecar's place is behind the proxy of a mesh that is a native sidecar, whose containers are
// not led through it, and that of its setting.
func TestPlaceAmongNeighbours(t *testing.T) {
	sidecar := func(name string) string { return "  - name: " + name + "\n    image: x\n    restartPolicy: Always\n" }
	first := func(name string) string { return "  - name: " + name + "\n    image: x\n" }
	for _, c := range []struct{ inits, place, want string }{
		{"", "auto", "spillway"},
		{first("migrate"), "auto", "spillway migrate"},
		{first("istio-init") + first("migrate"), "auto", "spillway istio-init migrate"},
		{first("istio-validation") + sidecar("istio-proxy") + first("migrate"), "auto",
			"istio-validation istio-proxy spillway migrate"},
		{first("linkerd-init") + sidecar("linkerd-proxy"), "auto", "linkerd-init linkerd-proxy spillway"},
		{sidecar("kuma-sidecar") + first("migrate"), "first", "spillway kuma-sidecar migrate"},
		{sidecar("mine") + first("migrate"), "after:mine", "mine spillway migrate"},
		{sidecar("mine") + first("migrate"), "last", "mine migrate spillway"},
	} {
		inits := ""
		if c.inits != "" {
			inits = "  initContainers:\n" + c.inits
		}
		text := strings.Replace(
			podWith(inits+"  containers:\n  - name: app\n    image: app\n  - name: istio-proxy\n    image: x\n"),
			"metadata:\n", "metadata:\n  annotations:\n    spillway.example.com/place: "+c.place+"\n", 1)
		pod, _, _ := injected(t, text)
		var names []string
		behind := false
		for _, container := range pod.Spec.InitContainers {
			names = append(names, container.Name)
			if led := len(container.Env) > 0; container.Name != Container && led != (behind && !isOfMesh(container.Name)) {
				t.Errorf("%s: %s is led through the sidecar: %t", c.want, container.Name, led)
			}
			behind = behind || container.Name == Container
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.place, got, c.want)
		}
		if len(pod.Spec.Containers[0].Env) == 0 || len(pod.Spec.Containers[1].Env) > 0 {
			t.Errorf("%s: %+v", c.want, pod.Spec.Containers)
		}
	}
	template := templateOf(t, &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "istio-validation"}},
		Containers:     []corev1.Container{{Name: "app"}, {Name: "istio-proxy"}},
	}})
	var left *SkippedError
	if _, _, err := Plan(Pod{Template: template}, options()); !errors.As(err, &left) || !left.IsNotable ||
		!strings.Contains(left.Error(), "native sidecars") {
		t.Errorf("redirected before: %v", err)
	}
}

// A Guaranteed pod is Guaranteed with its sidecar, in a manifest, too; one that says what it asks
// for as a whole is left to the webhook.
func TestGuaranteedStaysGuaranteed(t *testing.T) {
	pod, _, done := injected(
		t, podWith("  containers:\n  - name: app\n    image: app\n    resources:\n      limits:\n        cpu: 2\n        "+
			"memory: 1Gi\n"))
	r := pod.Spec.InitContainers[0].Resources
	if !sameAmounts(r.Requests, r.Limits) || r.Limits.Memory().String() != "256Mi" || len(done.Notes) != 1 {
		t.Errorf("%+v, notes %q", r, done.Notes)
	}
	_, all, err := Manifest(
		podWith("  resources:\n    limits:\n      memory: 1Gi\n  containers:\n  - name: app\n    image: app\n"), options())
	if err != nil || !strings.Contains(all[0].SkipReason, "spec.resources") {
		t.Errorf("%v %+v", err, all)
	}
}
