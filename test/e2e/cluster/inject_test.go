package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"spillway/test/framework/process"
)

const (
	sidecar  = "spillway" // the container's name
	app      = "app"
	selector = "app=" + app
)

var appLabels = map[string]string{"app": app}

// row is a pod, how it comes to be, and in what kind of namespace.
type row struct {
	name   string
	labels map[string]string // of the namespace
	policy []runtime.Object  // in it
	kind   func(corev1.PodTemplateSpec) runtime.Object
	change func(*corev1.PodTemplateSpec)
	// warning is part of why the pod gets no sidecar; empty: it gets one.
	warning string
	slow    string // why it is left out of the short form; empty: it is not
	// then is what is to happen to the running pod.
	then func(t *testing.T, c *cluster, pod *corev1.Pod)
}

// testSidecar creates each of the rows below in a namespace whose pods are to have a sidecar. The
// pod starts, and its program, which has the in-cluster configuration alone, is served from memory;
// or it is left alone with a warning, and works, too.
func (c *cluster) testSidecar(t *testing.T) {
	c.install(t, "sidecar", "--set=sidecar.image=localhost/"+imageTag, "--set=sidecar.mirror.resources={configmaps}")
	t.Log(c.helm(t, "test", release, "--logs"))
	t.Run("rows", func(t *testing.T) {
		for _, r := range rows() {
			t.Run(r.name, func(t *testing.T) {
				if testing.Short() && r.slow != "" {
					t.Skip("short: " + r.slow)
				}
				t.Parallel()
				c.testRow(t, r)
			})
		}
		t.Run("by command", func(t *testing.T) {
			t.Parallel()
			c.testCommand(t)
		})
	})
}

func rows() []row {
	size := func(requests, limits string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}
	}
	guaranteed := size("cpu=20m memory=64Mi", "cpu=20m memory=64Mi")
	sized := func(r corev1.ResourceRequirements) func(*corev1.PodTemplateSpec) {
		return func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Resources = r }
	}
	return []row{
		{name: "Deployment", kind: deployment},
		{name: "StatefulSet", kind: statefulSet},
		{name: "Job", kind: job},
		{name: "CronJob", kind: cronJob, slow: "it waits for the next minute"},
		{name: "Pod", kind: pod},
		{name: "restricted", kind: pod, labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}},
		{name: "LimitRange and ResourceQuota", kind: deployment, policy: []runtime.Object{
			&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.LimitRangeSpec{
				Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Default: amounts("cpu=200m memory=200Mi"),
					DefaultRequest: amounts("cpu=20m memory=50Mi"), Max: amounts("cpu=1 memory=300Mi")}}}},
			&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Spec: corev1.ResourceQuotaSpec{
				Hard: amounts("pods=2 limits.cpu=4 limits.memory=1Gi")}},
		}},
		{name: "pod-level resources", kind: pod, change: func(p *corev1.PodTemplateSpec) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu=50m memory=200Mi"),
				Limits: amounts("cpu=1 memory=400Mi")}
		}},
		{name: "Guaranteed", kind: pod, change: sized(guaranteed), then: func(t *testing.T, _ *cluster, pod *corev1.Pod) {
			t.Helper()
			if pod.Status.QOSClass != corev1.PodQOSGuaranteed {
				t.Errorf("it is %s", pod.Status.QOSClass)
			}
		}},
		{name: "mesh", kind: pod, change: func(p *corev1.PodTemplateSpec) {
			mesh := p.Spec.Containers[0]
			mesh.Name, mesh.RestartPolicy = "istio-proxy", ptr.To(corev1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = []corev1.Container{mesh}
		}},
		{name: "HTTPS_PROXY", kind: pod, change: func(p *corev1.PodTemplateSpec) {
			for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
				p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env,
					corev1.EnvVar{Name: name, Value: "http://proxy.invalid:3128"})
			}
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env,
				corev1.EnvVar{Name: "NO_PROXY", Value: "10.0.0.0/8"})
		}},
		{name: "automount off", kind: pod, warning: "automountServiceAccountToken",
			change: func(p *corev1.PodTemplateSpec) {
				p.Labels["spillway.example.com/inject"] = "enabled"
				p.Spec.AutomountServiceAccountToken = ptr.To(false)
			}},
		{name: "token of its own", kind: pod, change: func(p *corev1.PodTemplateSpec) { ownToken(p, time.Hour) }},
		{name: "token rotation", kind: pod, slow: "it waits for ten minutes", then: rotate,
			change: func(p *corev1.PodTemplateSpec) { ownToken(p, shortestToken) }},
		{name: "kill -9 of the sidecar", kind: pod, then: killSidecar},
		{name: "termination order", kind: pod, then: terminate},
	}
}

// ownToken gives a pod a token by a volume of its own, instead of the one that is made for every
// pod.
func ownToken(p *corev1.PodTemplateSpec, validity time.Duration) {
	p.Spec.AutomountServiceAccountToken = ptr.To(false)
	p.Spec.Volumes = []corev1.Volume{{Name: "own", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token",
				ExpirationSeconds: ptr.To(int64(validity.Seconds()))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace",
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
		}}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "own", ReadOnly: true,
		MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}
}

// shortestToken is the shortest validity that kube-apiserver grants. The kubelet renews a token
// when a fifth of its validity is left.
const shortestToken = 10 * time.Minute

// rotate awaits that the kubelet has renewed the token, and that the program is served from memory
// with the new one, past the end of the old.
func rotate(t *testing.T, c *cluster, p *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*shortestToken)
	defer cancel()
	tokens := map[string]time.Time{}
	for old := ""; ; {
		text, err := c.client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: app,
			TailLines: ptr.To[int64](10)}).DoRaw(ctx)
		must(t, err)
		for line := range bytes.Lines(text) {
			var l struct {
				Token, Error string
				Memory       bool
			}
			if json.Unmarshal(line, &l) != nil || l.Token == "" && l.Error == "" {
				continue
			}
			if l.Error != "" || !l.Memory {
				t.Fatalf("the program says %s", line)
			}
			if _, known := tokens[l.Token]; !known {
				tokens[l.Token] = time.Now()
			}
			if old == "" {
				old = l.Token
			}
			if l.Token != old && time.Since(tokens[old]) > shortestToken {
				return
			}
		}
		time.Sleep(time.Second)
	}
}

func (c *cluster) testRow(t *testing.T, r row) {
	ns := strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(r.name, " ", "-"), "_", "-"))
	c.namespace(t, ns, r)
	template := template()
	if r.change != nil {
		r.change(&template)
	}
	warnings := &warnings{}
	config := c.Config()
	config.WarningHandlerWithContext = warnings
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	created := r.kind(template)
	create(t, client, ns, created)
	if r.warning != "" {
		if text := warnings.String(); !strings.Contains(text, r.warning) || !strings.Contains(text, "not injected") {
			t.Errorf("the warnings are %q, want one of %q", text, r.warning)
		}
		process.Awaiting(t, "the pod", c.created(ns))
		pods, err := c.pods(t.Context(), ns, selector)
		must(t, err)
		if injected(&pods[0]) {
			t.Error("it has a sidecar")
		}
		return
	}
	p := c.works(t, ns, r.name == "Job" || r.name == "CronJob")
	if !injected(p) {
		t.Fatalf("it has no sidecar: %s", warnings)
	}
	if r.then != nil {
		r.then(t, c, p)
	}
}

// namespace makes one for a row, with an account that may read config maps everywhere.
func (c *cluster) namespace(t *testing.T, name string, r row) {
	t.Helper()
	labels := map[string]string{"spillway.example.com/inject": "enabled"}
	for key, value := range r.labels {
		labels[key] = value
	}
	_, err := c.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			c.showPods(t, name)
		}
		must(t, c.client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
	c.grant(t, name)
	for _, object := range r.policy {
		create(t, c.client, name, object)
	}
	if len(r.policy) > 0 {
		process.Awaiting(t, "the quota", func(ctx context.Context) error {
			quotas, err := c.client.CoreV1().ResourceQuotas(name).List(ctx, metav1.ListOptions{})
			if err == nil && len(quotas.Items) > 0 && len(quotas.Items[0].Status.Hard) == 0 {
				err = errNotYet
			}
			return err
		})
	}
}

// showPods logs what helps to see why a pod does not work.
func (c *cluster) showPods(t *testing.T, namespace string) {
	t.Helper()
	t.Log(c.kubectl(t, "--namespace="+namespace, "describe", "pods"))
	t.Log(c.kubectl(t, "--namespace="+namespace, "logs", "--selector="+selector, "--all-containers", "--prefix",
		"--tail=8"))
}

func (c *cluster) created(namespace string) func(context.Context) error {
	return func(ctx context.Context) error {
		pods, err := c.pods(ctx, namespace, selector)
		if err == nil && len(pods) == 0 {
			err = errNotYet
		}
		return err
	}
}

// works awaits that the only pod of a namespace is served from memory, by a list and by a watch,
// and for a Job that it is complete.
func (c *cluster) works(t *testing.T, namespace string, completes bool) (p *corev1.Pod) {
	t.Helper()
	process.Awaiting(t, "the pod in "+namespace, func(ctx context.Context) error {
		pods, err := c.pods(ctx, namespace, selector)
		if err != nil || len(pods) == 0 {
			return fmt.Errorf("there is none: %w", err)
		}
		p = &pods[0]
		if completes && p.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("it is %s", p.Status.Phase)
		}
		if !fromMemory([]byte(c.log(t, p, app))) {
			return fmt.Errorf("it is %s, and is not served from memory", p.Status.Phase)
		}
		return nil
	})
	return p
}

// fromMemory reports that a program's log has a list from memory and an object of a watch.
func fromMemory(log []byte) bool {
	list, watch := false, false
	for text := range bytes.Lines(log) {
		var line struct {
			Added  string
			Memory bool
		}
		if json.Unmarshal(text, &line) == nil {
			list, watch = list || line.Memory, watch || line.Added != ""
		}
	}
	return list && watch
}

func injected(p *corev1.Pod) bool {
	for _, container := range p.Spec.InitContainers {
		if container.Name == sidecar {
			return true
		}
	}
	return false
}

// killSidecar kills the sidecar's process. The kubelet starts it again, and the program, which has
// not been restarted, is served from memory again.
func killSidecar(t *testing.T, c *cluster, p *corev1.Pod) {
	t.Helper()
	before := len(c.log(t, p, app))
	must(t, c.KillContainer(p.Spec.NodeName, p.Status.InitContainerStatuses[0].ContainerID))
	process.Awaiting(t, "the sidecar's restart", func(ctx context.Context) error {
		now, err := c.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := now.Status.InitContainerStatuses[0]
		if now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Fatal("the program was restarted, too")
		}
		if status.RestartCount == 0 || status.Ready == false {
			return errNotYet
		}
		if log := c.log(t, p, app); len(log) < before || !strings.Contains(log[before:], `"memory":true`) {
			return errNotYet
		}
		return nil
	})
}

// terminate deletes the pod: the program, which is served until its own end, ends without an error.
func terminate(t *testing.T, c *cluster, p *corev1.Pod) {
	t.Helper()
	log, err := c.client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: app, Follow: true,
		TailLines: ptr.To[int64](1)}).Stream(t.Context())
	must(t, err)
	defer log.Close()
	must(t, c.client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
	var text bytes.Buffer
	_, err = text.ReadFrom(log)
	must(t, err)
	if strings.Contains(text.String(), `"error"`) {
		t.Errorf("at its end it said %s", text.String())
	}
}

// testCommand has `spillway inject` add the sidecar to a manifest, and takes it away again.
func (c *cluster) testCommand(t *testing.T) {
	const ns = "by-command"
	c.namespace(t, ns, row{labels: map[string]string{"spillway.example.com/inject": "disabled"}})
	program := filepath.Join(t.TempDir(), "spillway")
	build := exec.CommandContext(t.Context(), "go", "-C", c.root, "build", "-o", program, "./cmd/proxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	object := deployment(template())
	object.GetObjectKind().SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	manifest, err := yaml.Marshal(object)
	must(t, err)
	run := func(in []byte, args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Stdin = bytes.NewReader(in)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("spillway %v: %v: %s", args, err, said.String())
		}
		return out
	}
	changed := run(manifest, "inject", "--image=localhost/"+imageTag, "--resources=configmaps", "-f", "-")
	file := filepath.Join(t.TempDir(), "deployment.yaml")
	must(t, os.WriteFile(file, changed, 0o600))
	c.kubectl(t, "--namespace="+ns, "apply", "--filename="+file)
	if p := c.works(t, ns, false); !injected(p) {
		t.Error("it has no sidecar")
	}
	var was, now appsv1.Deployment
	back := run(changed, "uninject", "-f", "-")
	must(t, yaml.Unmarshal(manifest, &was))
	must(t, yaml.Unmarshal(back, &now))
	if !apiequality.Semantic.DeepEqual(now, was) {
		t.Errorf("uninject gives\n%s\nwant\n%s", back, manifest)
	}
}

// warnings are what kube-apiserver warns a client of.
type warnings struct {
	mu   sync.Mutex
	text []string
}

var _ rest.WarningHandlerWithContext = (*warnings)(nil)

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warnings) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.text, "\n")
}

// amounts reads name=quantity pairs.
func amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, pair := range strings.Fields(text) {
		name, quantity, _ := strings.Cut(pair, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return list
}

// template is a pod that PodSecurity takes for restricted.
func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			ServiceAccountName:            account,
			TerminationGracePeriodSeconds: ptr.To[int64](5),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](1000),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: app, Image: clientImage, SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}
}

func meta() metav1.ObjectMeta { return metav1.ObjectMeta{Name: app} }

func pod(p corev1.PodTemplateSpec) runtime.Object {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: app, Labels: p.Labels}, Spec: p.Spec}
}

func deployment(p corev1.PodTemplateSpec) runtime.Object {
	return &appsv1.Deployment{ObjectMeta: meta(), Spec: appsv1.DeploymentSpec{Template: p,
		Selector: &metav1.LabelSelector{MatchLabels: appLabels}}}
}

func statefulSet(p corev1.PodTemplateSpec) runtime.Object {
	return &appsv1.StatefulSet{ObjectMeta: meta(), Spec: appsv1.StatefulSetSpec{Template: p, ServiceName: app,
		Selector: &metav1.LabelSelector{MatchLabels: appLabels}}}
}

// job's program ends at its first list from memory.
func job(p corev1.PodTemplateSpec) runtime.Object {
	p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	p.Spec.Containers[0].Args = []string{"-once"}
	return &batchv1.Job{ObjectMeta: meta(), Spec: batchv1.JobSpec{Template: p}}
}

func cronJob(p corev1.PodTemplateSpec) runtime.Object {
	return &batchv1.CronJob{ObjectMeta: meta(), Spec: batchv1.CronJobSpec{Schedule: "* * * * *",
		JobTemplate: batchv1.JobTemplateSpec{Spec: job(p).(*batchv1.Job).Spec}}}
}

// create creates an object in a namespace.
func create(t *testing.T, client kubernetes.Interface, namespace string, object runtime.Object) {
	t.Helper()
	ctx, o := t.Context(), metav1.CreateOptions{}
	var err error
	switch object := object.(type) {
	case *corev1.Pod:
		_, err = client.CoreV1().Pods(namespace).Create(ctx, object, o)
	case *appsv1.Deployment:
		_, err = client.AppsV1().Deployments(namespace).Create(ctx, object, o)
	case *appsv1.StatefulSet:
		_, err = client.AppsV1().StatefulSets(namespace).Create(ctx, object, o)
	case *batchv1.Job:
		_, err = client.BatchV1().Jobs(namespace).Create(ctx, object, o)
	case *batchv1.CronJob:
		_, err = client.BatchV1().CronJobs(namespace).Create(ctx, object, o)
	case *corev1.LimitRange:
		_, err = client.CoreV1().LimitRanges(namespace).Create(ctx, object, o)
	case *corev1.ResourceQuota:
		_, err = client.CoreV1().ResourceQuotas(namespace).Create(ctx, object, o)
	default:
		t.Fatalf("%T is of a kind that is not known here", object)
	}
	must(t, err)
}
