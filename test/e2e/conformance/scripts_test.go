package conformance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	stage     = "stage" // the namespace of all plays
	onStage   = "/api/v1/namespaces/stage/"
	mergeType = types.MergePatchType
)

func byLabel(text string) string { return "&labelSelector=" + escape(text) }
func byField(text string) string { return "&fieldSelector=" + escape(text) }

// plays are the scripts. Each ends with an object named end, or with the end of the one object that
// is watched.
func (s *suite) plays() []writeScript {
	const story = "W-103 W-104 W-105 W-130 W-131 "
	return []writeScript{
		{"configmaps", "configmaps", []watcher{
			{name: "all", rules: story, path: onStage + "configmaps", until: "ADDED end"},
			{name: "everywhere", rules: story + "W-105", path: allMaps, query: byField("metadata.namespace=stage"),
				until: "ADDED end"},
			{name: "app=x", rules: story + "W-117", path: onStage + "configmaps", query: byLabel("app=x"), until: "ADDED end"},
			{name: "app!=y", rules: story + "W-117", path: onStage + "configmaps", query: byLabel("app!=y"), until: "ADDED end"},
			{name: "app in (x,z)", rules: story, path: onStage + "configmaps", query: byLabel("app in (x,z)"),
				until: "ADDED end"},
			{name: "app", rules: story, path: onStage + "configmaps", query: byLabel("app"), until: "ADDED end"},
			{name: "!tier", rules: story, path: onStage + "configmaps", query: byLabel("!tier"), until: "ADDED end"},
			{name: "one", rules: story + "W-117", path: onStage + "configmaps", query: byField("metadata.name=s"),
				until: "DELETED s"},
			{name: "one everywhere", rules: story, path: allMaps, query: byField("metadata.name=s"), until: "DELETED s"},
			{name: "one, if app=x", rules: story, path: onStage + "configmaps", query: byField("metadata.name=again") +
				byLabel("app=x"), until: "MODIFIED again"},
			{name: "all but one", rules: story, path: onStage + "configmaps", query: byField("metadata.name!=s"),
				until: "ADDED end"},
			{name: "as clients in JSON ask", rules: story + "W-7 W-193", path: onStage + "configmaps", until: "ADDED end",
				header: map[string]string{"Accept": "application/json, */*", "Accept-Encoding": "gzip"}},
		}, s.playConfigMaps},
		{"pods", "pods", []watcher{
			{name: "all", rules: story, path: onStage + "pods", until: "ADDED end"},
			{name: "of a node", rules: story + "W-117 W-196", path: "/api/v1/pods", query: byField("spec.nodeName=n1"),
				until: "ADDED end"},
			{name: "of no node", rules: story, path: onStage + "pods", query: byField("spec.nodeName="), until: "DELETED bound"},
			{name: "pending", rules: story, path: onStage + "pods", query: byField("status.phase=Pending"), until: "ADDED end"},
			{name: "running", rules: story, path: onStage + "pods", query: byField("status.phase=Running"),
				until: "DELETED bound"},
			{name: "active", rules: story + "W-190", path: "/api/v1/pods",
				query: byField("status.phase!=Succeeded,status.phase!=Failed"), until: "ADDED end"},
			{name: "with an address", rules: story + "W-153", path: onStage + "pods", query: byField("status.podIP=10.0.0.1"),
				until: "DELETED bound"},
		}, s.playPods},
		{"services", "services", []watcher{
			{name: "all", rules: story, path: onStage + "services", until: "ADDED end"},
			{name: "ClusterIP", rules: story, path: onStage + "services", query: byField("spec.type=ClusterIP"),
				until: "ADDED end"},
			{name: "NodePort", rules: story, path: "/api/v1/services", query: byField("spec.type=NodePort"), until: "DELETED s"},
			{name: "headless", rules: story + "W-196", path: onStage + "services", query: byField("spec.clusterIP=None"),
				until: "ADDED end"},
		}, s.playServices},
		{"secrets", "secrets", []watcher{
			{name: "all", rules: story, path: onStage + "secrets", until: "ADDED end"},
			{name: "opaque", rules: story, path: onStage + "secrets", query: byField("type=Opaque"), until: "ADDED end"},
		}, s.playSecrets},
		{"namespaces", "namespaces", []watcher{
			{name: "all", rules: story, path: "/api/v1/namespaces", until: "DELETED curtain"},
			// when it begins to die,
			{name: "active", rules: story, path: "/api/v1/namespaces", query: byField("status.phase=Active"),
				until: "DELETED curtain"},
			{name: "terminating", rules: story, path: "/api/v1/namespaces", query: byField("status.phase=Terminating"),
				until: "DELETED curtain"},
			{name: "one", rules: story, path: "/api/v1/namespaces", query: byField("metadata.name=curtain"),
				until: "DELETED curtain"},
			{name: "by the name's label", rules: story, path: "/api/v1/namespaces",
				query: byLabel("kubernetes.io/metadata.name=curtain"), until: "DELETED curtain"},
		}, s.playNamespaces},
		{"nodes", "nodes", []watcher{
			{name: "all", rules: story, path: "/api/v1/nodes", until: "DELETED n9"},
			{name: "unschedulable", rules: story, path: "/api/v1/nodes", query: byField("spec.unschedulable=true"),
				until: "DELETED n9"},
			{name: "one", rules: story + "W-196", path: "/api/v1/nodes", query: byField("metadata.name=n9"),
				until: "DELETED n9"},
		}, s.playNodes},
		{"deployments", "deployments", []watcher{
			{name: "all", rules: story, path: "/apis/apps/v1/namespaces/stage/deployments", until: "ADDED end"},
			{name: "by label", rules: story, path: "/apis/apps/v1/deployments", query: byLabel("release=new"),
				until: "ADDED end"},
		}, s.playDeployments},
		{"widgets", "widgets", []watcher{
			{name: "all", rules: story, path: "/apis/conformance.example.com/v1/namespaces/stage/widgets", until: "ADDED end"},
			{name: "red", rules: story + "W-153", path: allWidgets, query: byField("spec.color=red"), until: "ADDED end"},
			{name: "of size 3", rules: story, path: allWidgets, query: byField("spec.size=3,metadata.namespace=stage"),
				until: "ADDED end"},
			{name: "not on", rules: story, path: allWidgets, query: byField("spec.on!=true"), until: "ADDED end"},
			{name: "by label", rules: story, path: allWidgets, query: byLabel("app=end"), until: "ADDED end"},
		}, s.playWidgets},
	}
}

func (s *suite) playConfigMaps(t *testing.T) {
	maps, ctx := s.client.CoreV1().ConfigMaps(stage), t.Context()
	// W-103
	for _, step := range []struct{ app, value string }{{"y", "v"}, {"x", "v"}, {"x", "2"}, {"z", "3"}, {"z", "4"},
		{"x", "4"}} {
		s.put(t, configMap(stage, "s", step.app, step.value))
	}
	must(t, maps.Delete(ctx, "s", metav1.DeleteOptions{}))

	held := configMap(stage, "held", "x", "1")
	held.Finalizers = []string{"conformance.example.com/hold"}
	s.put(t, held)
	must(t, maps.Delete(ctx, "held", metav1.DeleteOptions{}))
	_, err := maps.Patch(ctx, "held", mergeType, []byte(`{"metadata":{"labels":{"app":"y"}}}`), metav1.PatchOptions{})
	must(t, err)
	_, err = maps.Patch(ctx, "held", mergeType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	must(t, err)

	for range 3 { // another object under the same name
		s.put(t, configMap(stage, "again", "x", "1"))
		must(t, maps.Delete(ctx, "again", metav1.DeleteOptions{}))
	}
	s.put(t, configMap(stage, "again", "x", "1"))
	s.put(t, configMap(stage, "again", "x", "2"))
	_, err = maps.Patch(ctx, "again", mergeType, []byte(`{"metadata":{"labels":{"tier":"front","app":null}}}`),
		metav1.PatchOptions{})
	must(t, err)
	s.put(t, configMap(stage, "escapes", "x", "<&>\u2028\"\\ ü €"))
	must(t, maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=x"}))
	s.put(t, configMap(stage, "end", "x", "1"))
}

func (s *suite) playPods(t *testing.T) {
	pods, ctx := s.client.CoreV1().Pods(stage), t.Context()
	_, err := pods.Create(ctx, pod("bound", ""), metav1.CreateOptions{})
	must(t, err)
	must(t, pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "bound"},
		Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}, metav1.CreateOptions{}))
	for _, patch := range []string{
		`{"status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}`,
		`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
	} {
		_, err := pods.Patch(ctx, "bound", mergeType, []byte(patch), metav1.PatchOptions{}, "status")
		must(t, err)
	}
	_, err = pods.Patch(ctx, "bound", mergeType, []byte(`{"metadata":{"labels":{"extra":"yes"}}}`), metav1.PatchOptions{})
	must(t, err)
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	must(t, pods.Delete(ctx, "bound", now))
	_, err = pods.Create(ctx, pod("done", "n2"), metav1.CreateOptions{})
	must(t, err)
	_, err = pods.Patch(ctx, "done", mergeType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{},
		"status")
	must(t, err)
	must(t, pods.Delete(ctx, "done", now))
	_, err = pods.Create(ctx, pod("end", "n1"), metav1.CreateOptions{})
	must(t, err)
}

func (s *suite) playServices(t *testing.T) {
	services, ctx := s.client.CoreV1().Services(stage), t.Context()
	service := func(name, ip string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}},
		}
	}
	_, err := services.Create(ctx, service("s", ""), metav1.CreateOptions{})
	must(t, err)
	for _, kind := range []string{"NodePort", "ClusterIP", "NodePort"} {
		_, err := services.Patch(ctx, "s", mergeType, []byte(`{"spec":{"type":"`+kind+`"}}`), metav1.PatchOptions{})
		must(t, err)
	}
	must(t, services.Delete(ctx, "s", metav1.DeleteOptions{}))
	_, err = services.Create(ctx, service("end", corev1.ClusterIPNone), metav1.CreateOptions{})
	must(t, err)
}

func (s *suite) playSecrets(t *testing.T) {
	secrets, ctx := s.client.CoreV1().Secrets(stage), t.Context()
	for _, o := range []struct {
		name string
		kind corev1.SecretType
	}{{"basic", corev1.SecretTypeBasicAuth}, {"end", corev1.SecretTypeOpaque}} {
		_, err := secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: o.name}, Type: o.kind, StringData: map[string]string{"username": "u",
				"password": "p"},
		}, metav1.CreateOptions{})
		must(t, err)
		if o.name != "end" {
			must(t, secrets.Delete(ctx, o.name, metav1.DeleteOptions{}))
		}
	}
}

// playNamespaces lets a namespace live and die; no controller but the test finalizes it.
func (s *suite) playNamespaces(t *testing.T) {
	namespaces, ctx := s.client.CoreV1().Namespaces(), t.Context()
	s.makeNamespace(t, "curtain")
	_, err := namespaces.Patch(ctx, "curtain", mergeType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		metav1.PatchOptions{})
	must(t, err)
	must(t, namespaces.Delete(ctx, "curtain", metav1.DeleteOptions{}))
	dying, err := namespaces.Get(ctx, "curtain", metav1.GetOptions{})
	must(t, err)
	dying.Spec.Finalizers = nil
	_, err = namespaces.Finalize(ctx, dying, metav1.UpdateOptions{})
	must(t, err)
}

func (s *suite) playNodes(t *testing.T) {
	nodes, ctx := s.client.CoreV1().Nodes(), t.Context()
	_, err := s.cp.MakeNode(ctx, "n9")
	must(t, err)
	for _, patch := range []string{`{"spec":{"unschedulable":true}}`, `{"spec":{"unschedulable":null}}`,
		`{"spec":{"unschedulable":true}}`} {
		_, err := nodes.Patch(ctx, "n9", mergeType, []byte(patch), metav1.PatchOptions{})
		must(t, err)
	}
	_, err = nodes.Patch(ctx, "n9", mergeType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	must(t, err)
	must(t, nodes.Delete(ctx, "n9", metav1.DeleteOptions{}))
}

func (s *suite) playDeployments(t *testing.T) {
	deployments, ctx := s.client.AppsV1().Deployments(stage), t.Context()
	_, err := deployments.Create(ctx, deployment("d"), metav1.CreateOptions{})
	must(t, err)
	for _, patch := range []string{
		`{"spec":{"replicas":3}}`, `{"metadata":{"labels":{"release":"new"}}}`, `{"metadata":{"labels":{"release":"old"}}}`,
	} {
		_, err := deployments.Patch(ctx, "d", mergeType, []byte(patch), metav1.PatchOptions{})
		must(t, err)
	}
	_, err = deployments.Patch(ctx, "d", mergeType, []byte(`{"status":{"replicas":3,"observedGeneration":2}}`),
		metav1.PatchOptions{}, "status")
	must(t, err)
	must(t, deployments.Delete(ctx, "d", metav1.DeleteOptions{}))
	end := deployment("end")
	end.Labels["release"] = "new"
	_, err = deployments.Create(ctx, end, metav1.CreateOptions{})
	must(t, err)
}

func (s *suite) playWidgets(t *testing.T) {
	client, ctx := s.dynamic.Resource(widgets).Namespace(stage), t.Context()
	create := func(o *unstructured.Unstructured) {
		t.Helper()
		_, err := client.Create(ctx, o, metav1.CreateOptions{})
		must(t, err)
	}
	create(widget("w", "blue", 1))
	for _, patch := range []string{
		`{"spec":{"color":"red"}}`, `{"spec":{"size":3}}`, `{"spec":{"on":true}}`, `{"spec":{"color":null}}`,
		`{"spec":{"on":false,"color":"red"}}`,
		`{"metadata":{"labels":{"app":"end"}}}`,
	} {
		_, err := client.Patch(ctx, "w", mergeType, []byte(patch), metav1.PatchOptions{})
		must(t, err)
	}
	_, err := client.Patch(ctx, "w", mergeType, []byte(`{"status":{"phase":"new"}}`), metav1.PatchOptions{}, "status")
	must(t, err)
	must(t, client.Delete(ctx, "w", metav1.DeleteOptions{}))
	create(widget("end", "red", 3))
}
