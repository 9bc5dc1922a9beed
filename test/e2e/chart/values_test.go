package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"spillway/test/framework/process"
)

const serviceMonitor = "--set=monitoring.serviceMonitor.enabled=true"

// Values with which a release would not work are refused, with what to do.
func TestBrokenReleasesAreRefused(t *testing.T) {
	h := newHelm(t)
	for name, c := range map[string]struct {
		values []string
		want   string
	}{
		"Prometheus may not read what it scrapes": {[]string{serviceMonitor},
			"needs rbac.metricsReaders, or Prometheus gets 403. Name its account: --set 'rbac.metricsReaders[0].kind="},
		"a reader is a service account of no namespace": {
			[]string{`--set-json=rbac.statusReaders=[{"kind":"ServiceAccount","name":"me"}]`},
			"rbac.statusReaders[0].namespace is needed"},
		"nothing is mirrored": {[]string{"--set-json=mirror.resources=[]"}, "name what to mirror"},
		"what is added is misspelt": {[]string{"--set=mirror.extraResources={deployment.apps}"},
			"mirror.extraResources: deployment.apps: name its plural: deployments.apps"},
		"what is added is everything": {[]string{"--set=mirror.extraResources={*}"}, "needs rbac.readEverything=true"},
		"an argument moves what the chart relies on": {[]string{"--set=extraArgs={--resources=pods}"},
			"extraArgs: the chart sets --resources itself"},
		"an argument is no flag": {[]string{"--set=extraArgs={debug}"}, "'/extraArgs/0'"},
		"the autoscaler has no room": {[]string{"--set=autoscaling.enabled=true,autoscaling.minReplicas=11"},
			"autoscaling.minReplicas is above autoscaling.maxReplicas"},
		"the autoscaler has nothing to compare with": {
			[]string{"--set=autoscaling.enabled=true,resources.requests.cpu=null"}, "needs resources.requests.cpu"},
		"the autoscaler of a load shedder has nothing to compare with": {
			[]string{"--set=mode=loadShedding,autoscaling.enabled=true,loadShedding.resources.requests.cpu=null"},
			"needs loadShedding.resources.requests.cpu"},
		"a proxy has settings of the webhook": {[]string{"--set=webhook.clientAllowedNames={a}"},
			"webhook.clientAllowedNames has no meaning unless mode is sidecar"},
		"an issuer has no name": {[]string{"--set=tls.source=certManager,tls.certManager.issuerRef.kind=Issuer"},
			"tls.certManager.issuerRef is needed"},
		"memory has no unit": {[]string{"--set=resources.limits.memory=512"},
			"'/resources/limits/memory': got number, want"},
		"memory is in thousandths":       {[]string{"--set=resources.limits.memory=512m"}, "'/resources/limits/memory'"},
		"a size is misspelt":             {[]string{"--set=resources.limit.memory=1Gi"}, "'limit' not allowed"},
		"a security context is misspelt": {[]string{"--set=podSecurityContext.runAsUsr=1"}, "'runAsUsr' not allowed"},
		"a Service cannot have this name": {[]string{"--set=nameOverride=a.b"},
			"spillway-a.b cannot be the name of a Service"},
		"the webhook's authority is in base64": {
			[]string{"--set=mode=sidecar,tls.source=secret,tls.secretName=a,webhook.caBundle=TFMw"},
			"in PEM and not in base64"},
		"the webhook mirrors nothing itself": {[]string{"--set=mode=sidecar,mirror.extraResources={secrets}"},
			"mirror.extraResources has no meaning when mode is sidecar"},
		"no webhook and no pod without it": {
			[]string{"--set=mode=sidecar,replicaCount=0,webhook.failurePolicy=Fail"}, "no pod could be created"},
		"readers get no role": {
			[]string{"--set=rbac.create=false", `--set-json=rbac.statusReaders=[{"kind":"User","name":"x"}]`},
			"rbac.statusReaders has no meaning when rbac.create is false: allow these readers to get the URL /statusz"},
		"a scraper gets no role": {
			[]string{"--set=rbac.create=false", `--set-json=rbac.metricsReaders=[{"kind":"User","name":"x"}]`},
			"rbac.metricsReaders has no meaning when rbac.create is false"},
		"the autoscaler cannot compare the CPU time of another container": {
			[]string{"--set=autoscaling.enabled=true", `--set-json=extraContainers=[{"name":"a","image":"b"}]`},
			"needs extraContainers[0].resources.requests.cpu"},
		"a container has no name": {[]string{`--set-json=extraContainers=[{"image":"b"}]`}, "'/extraContainers/0'"},
		"a level of the audit policy is misspelt": {[]string{"--set=audit.policy.rules[0].level=Bogus"},
			"'/audit/policy/rules/0/level': value must be one of"},
		"a rule of the audit policy has no level": {[]string{"--set=audit.policy.rules[0].verbs={get}"},
			"missing property 'level'"},
		"a rule of the audit policy is misspelt": {[]string{"--set=audit.policy.rules[0].verb=get"}, "'verb' not allowed"},
		"a stage of the audit policy is misspelt": {[]string{"--set=audit.policy.rules[0].omitStages={No}"},
			"'/audit/policy/rules/0/omitStages/0'"},
		"two ports of a sidecar are one": {[]string{"--set=mode=sidecar,sidecar.port=26464"},
			"sidecar.port and sidecar.healthPort must differ"},
	} {
		if _, err := h.template(t.Context(), c.values...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Each former name of a value is refused with the new one, and both documents list it.
func TestFormerNamesAreRefusedWithTheNewOnes(t *testing.T) {
	h := newHelm(t)
	names := formerNames(t, h)
	if len(names) < 25 {
		t.Errorf("only %d names are known", len(names))
	}
	for former, name := range names {
		_, err := h.template(t.Context(), "--set-json="+former+"=["+`"a"]`)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s is now %s", former, name)) {
			t.Errorf("%s: %v, want %s", former, err, name)
		}
	}
	_, err := h.template(t.Context(), "--set=workload.replicas=3,workload.kind=DaemonSet,sidecar.resources=pods")
	if err == nil || !strings.Contains(err.Error(), "values with former names: sidecar.resources is now "+
		"sidecar.mirror.resources; workload.kind is now kind; workload.replicas is now replicaCount.") {
		t.Errorf("several at once: %v", err)
	}
	if _, err := h.template(t.Context(), "--set=workload.replica=3"); err == nil ||
		!strings.Contains(err.Error(), "workload no longer exists") {
		t.Errorf("a name that never was: %v", err)
	}
	for former, name := range map[string]string{
		"config.history-bytes":                             "config.historyBytes",
		"config.tls-cert-file":                             "config.tlsCertFile",
		"config.client-ca-file":                            "config.clientCAFile",
		"config.requestheader-allowed-names":               "config.requestHeaderAllowedNames",
		"config.audit-log-maxsize":                         "config.auditLogMaxSize",
		"config.reauth-sweep":                              "config.reauthorizationInterval",
		"config.unready-when-away":                         "config.readyzUpstreamTimeout",
		"config.semantics":                                 "config.emulatedVersion",
		"config.http2":                                     "config.disableHTTP2Serving",
		"config.debug":                                     "config.profiling and config.allowCoreDumps",
		"loadShedding.limits.max-passthrough-qps-per-user": "loadShedding.limits.maxPassthroughQPSPerUser",
		"loadShedding.limits.max-large-head-bytes":         "loadShedding.limits.maxLargeHeaderBytes",
		"loadShedding.limits.history-bytes":                "config.historyBytes",
	} {
		_, err := h.template(t.Context(), "--set="+former+"=1")
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s is now %s.", former, name)) {
			t.Errorf("%s: %v, want %s", former, err, name)
		}
	}
	for values, want := range map[string]string{
		"config.metrics-tls=true": "config.metrics-tls no longer exists. The section",
		"config.writers=2":        "config.writers no longer exists. The section",
		"config.histoy-bytes=1Mi": "no such settings: config.histoy-bytes (did you mean config.historyBytes?). " +
			"`spillway config print` lists all",
		"loadShedding.limits.max-watchs=1": "loadShedding.limits.max-watchs (did you mean loadShedding.limits.maxWatches?)",
		"config.no-such-thing=1":           "no such settings: config.no-such-thing. `spillway config print` lists all",
		"workload.kind=DaemonSet,config.no-such-thing=1": "workload.kind is now kind. The section \"Values with former " +
			"names\" of docs/operations.md lists all; and no such settings: config.no-such-thing.",
	} {
		if _, err := h.template(t.Context(), "--set="+values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		} else if strings.Contains(want, "no such") && strings.Contains(err.Error(), "thing is now") {
			t.Errorf("%s: it names a setting that does not exist: %v", values, err)
		}
	}
	root := process.Repository(t)
	for _, document := range []string{"CHANGELOG.md", "docs/operations.md"} {
		text, err := os.ReadFile(filepath.Join(root, document))
		must(t, err)
		for former, name := range names {
			row := regexp.MustCompile("(?m)^\\| (chart: )?`" + regexp.QuoteMeta(former) + "`.*\\| (chart: )?`" +
				regexp.QuoteMeta(name) + "`")
			if !row.Match(text) {
				t.Errorf("%s does not say that %s is now %s", document, former, name)
			}
		}
	}
}

// formerNames are the names that the chart knows, and what they are now.
func formerNames(t *testing.T, h *helm) (names map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.chart, "templates", "_check.tpl"))
	must(t, err)
	_, table, _ := strings.Cut(string(text), "\n{{- define \"spillway.formerNames\" -}}\n")
	table, _, _ = strings.Cut(table, "{{- end -}}")
	must(t, yaml.Unmarshal([]byte(table), &names))
	return names
}

// A parent chart may leave this one out, and chooses the registry and the secrets of all images.
func TestUmbrellaCharts(t *testing.T) {
	h := newHelm(t)
	manifest, err := h.template(t.Context(), "--set=enabled=false", serviceMonitor)
	if err != nil || strings.TrimSpace(manifest) != "" {
		t.Errorf("enabled=false renders %v, %s", err, manifest)
	}
	for name, c := range map[string]struct{ values, want string }{
		"the default":                     {"", "registry.example.com/spillway:7"},
		"a registry":                      {"image.registry=localhost:5000", "localhost:5000/spillway:7"},
		"no registry":                     {"image.registry=", "spillway:7"},
		"a path in the registry":          {"image.repository=team/spillway", "registry.example.com/team/spillway:7"},
		"a repository names its registry": {"image.repository=ghcr.io/team/spillway", "ghcr.io/team/spillway:7"},
		"all charts have one registry":    {"global.imageRegistry=mirror.test", "mirror.test/spillway:7"},
		"all charts have one registry, whatever the repository names": {
			"global.imageRegistry=mirror.test,image.repository=ghcr.io/team/spillway", "mirror.test/team/spillway:7"},
		"the registry of no chart": {"global.imageRegistry=null", "registry.example.com/spillway:7"},
	} {
		manifest, err := h.template(t.Context(), "--set-string=image.tag=7", "--set="+c.values)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, pod := range podsOf(t, objects(t, manifest)) {
			if image := pod.Spec.Containers[0].Image; image != c.want {
				t.Errorf("%s: the image is %s, want %s", name, image, c.want)
			}
		}
	}
	manifest, err = h.template(t.Context(), `--set-json=global={"imagePullSecrets":["a",{"name":"b"}],"team":{"x":1}}`,
		`--set-json=imagePullSecrets=[{"name":"b"},{"name":"c"}]`)
	must(t, err)
	for _, pod := range podsOf(t, objects(t, manifest)) {
		if got := fmt.Sprint(pod.Spec.ImagePullSecrets); got != "[{a} {b} {c}]" {
			t.Errorf("the secrets are %s", got)
		}
	}
}

// With cert-manager or a Secret of another tool, the same values give the same manifest, as Argo CD
// needs.
func TestRendersAreEqual(t *testing.T) {
	h := newHelm(t)
	for _, mode := range []string{"cluster", "loadShedding", "sidecar"} {
		for name, values := range map[string][]string{
			"cert-manager": {"--set=tls.source=certManager,tls.certManager.issuerRef.name=ca"},
			"a Secret": {"--set=tls.source=secret,tls.secretName=mine",
				"--set-file=webhook.caBundle=" + map[string]string{"sidecar": "testdata/ca.crt"}[mode]},
		} {
			var renders [2]string
			for i := range renders {
				var err error
				renders[i], err = h.templateOf(t.Context(), h.chart, append(slices.DeleteFunc(values, func(v string) bool {
					return strings.HasSuffix(v, "=")
				}), "--set=mode="+mode)...)
				must(t, err)
			}
			if renders[0] != renders[1] {
				t.Errorf("%s, %s: two renders differ", mode, name)
			}
		}
	}
}

// Every object and pod has the labels that Kubernetes recommends, and those of the values.
func TestLabelsAreComplete(t *testing.T) {
	h := newHelm(t)
	for name, values := range settings {
		manifest, err := h.template(t.Context(), append(slices.Clone(values), "--set=commonLabels.team=a")...)
		must(t, err)
		for _, o := range objects(t, manifest) {
			f := func(what string, o *unstructured.Unstructured) {
				t.Helper()
				got := o.GetLabels()
				for _, key := range []string{"name", "instance", "version", "component", "part-of", "managed-by"} {
					if got["app.kubernetes.io/"+key] == "" {
						t.Errorf("%s: %s %s has no %s: %v", name, what, o.GetName(), key, got)
					}
				}
				if got["helm.sh/chart"] == "" || got["team"] != "a" {
					t.Errorf("%s: %s %s has the labels %v", name, what, o.GetName(), got)
				}
			}
			f(o.GetKind(), o)
			if o.GetKind() == "Deployment" || o.GetKind() == "DaemonSet" {
				f("the pod of "+o.GetKind(), podOf(t, o))
			}
		}
	}
	manifest, err := h.template(t.Context(), `--set-json=commonLabels={"app.kubernetes.io/part-of":"platform",`+
		`"app.kubernetes.io/name":"mine","spillway.example.com/inject":"enabled"}`)
	must(t, err)
	for _, o := range objects(t, manifest) {
		if got := o.GetLabels(); got["app.kubernetes.io/part-of"] != "platform" ||
			!strings.HasPrefix(got["app.kubernetes.io/name"], "spillway") {
			t.Errorf("labels of all objects do not take precedence, or select others: %v", got)
		}
	}
}

// OpenShift's restricted-v2 chooses the user and groups of pods, and admits no privilege.
func TestOpenShiftChoosesIDs(t *testing.T) {
	h := newHelm(t)
	parent := t.TempDir()
	file, err := os.ReadFile(filepath.Join(h.chart, "values.openshift.yaml"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(parent, "Chart.yaml"), []byte("apiVersion: v2\nname: parent\nversion: 1.0.0\n"),
		0o600))
	must(t, os.WriteFile(filepath.Join(parent, "values.yaml"), []byte("spillway:\n  "+
		strings.ReplaceAll(string(file), "\n", "\n  ")), 0o600))
	must(t, os.CopyFS(filepath.Join(parent, "charts", "spillway"), os.DirFS(h.chart)))
	for _, mode := range []string{"cluster", "loadShedding", "sidecar"} {
		alone, err := h.template(t.Context(), "--values="+filepath.Join(h.chart, "values.openshift.yaml"), "--set=mode="+mode)
		must(t, err)
		below, err := h.templateOf(t.Context(), parent, "--set=spillway.tls.generated.withoutCluster=true",
			"--set=spillway.mode="+mode)
		must(t, err)
		for _, manifest := range []string{alone, below} {
			for _, pod := range podsOf(t, objects(t, manifest)) {
				of, c := pod.Spec.SecurityContext, pod.Spec.Containers[0].SecurityContext
				text, err := json.Marshal([]any{of, c})
				must(t, err)
				if of.RunAsUser != nil || of.RunAsGroup != nil || of.FSGroup != nil || c.RunAsUser != nil ||
					c.RunAsGroup != nil || strings.Contains(string(text), "65532") {
					t.Errorf("%s: %s has fixed ids: %s", mode, pod.Name, text)
				}
				if !*of.RunAsNonRoot || of.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
					*c.AllowPrivilegeEscalation || fmt.Sprint(c.Capabilities.Drop) != "[ALL]" {
					t.Errorf("%s: %s is not restricted: %s", mode, pod.Name, text)
				}
				for _, v := range pod.Spec.Volumes {
					if v.ConfigMap == nil && v.Secret == nil && v.EmptyDir == nil && v.Ephemeral == nil {
						t.Errorf("%s: %s has the volume %s", mode, pod.Name, v.Name)
					}
				}
			}
		}
	}
}

// What is added to the default list is mirrored, permitted, tested and named, once.
func TestExtraResourcesAreAdded(t *testing.T) {
	h := newHelm(t)
	const want = "pods,services,endpointslices.discovery.k8s.io,nodes,namespaces,configmaps,deployments.apps"
	values := "--set=mirror.extraResources={deployments.apps,pods,deployments.apps}"
	manifest, err := h.template(t.Context(), values)
	must(t, err)
	all := objects(t, manifest)
	text, _, err := unstructured.NestedString(pick(t, all, "ConfigMap", release).Object, "data", "config.yaml")
	must(t, err)
	var config struct{ Resources []string }
	must(t, yaml.Unmarshal([]byte(text), &config))
	if got := strings.Join(config.Resources, ","); got != want {
		t.Errorf("it mirrors %s", got)
	}
	role, err := pick(t, all, "ClusterRole", namespace+":"+release).MarshalJSON()
	must(t, err)
	if !strings.Contains(string(role), `{"apiGroups":["apps"],"resources":["deployments"],"verbs":`) {
		t.Errorf("it may not read them: %s", role)
	}
	args, _, err := unstructured.NestedSlice(pick(t, all, "Pod", release+"-test").Object, "spec", "containers")
	must(t, err)
	if !strings.Contains(fmt.Sprint(args), "--resource="+want+" ") && !strings.Contains(fmt.Sprint(args),
		"--resource="+want+"]") {
		t.Errorf("helm test does not check them: %v", args)
	}
	if notes := h.notes(t, values); !strings.Contains(notes, "mirrors "+strings.ReplaceAll(want, ",", ", ")+" and") {
		t.Errorf("the notes do not name them: %s", notes)
	}
}

// The values with the names of `helm create` reach the pod.
func TestConventionalValuesReachThePod(t *testing.T) {
	h := newHelm(t)
	for _, mode := range []string{"cluster", "loadShedding", "sidecar"} {
		manifest, err := h.template(t.Context(), "--set=mode="+mode,
			"--set=revisionHistoryLimit=3,livenessProbe.periodSeconds=7",
			"--set=readinessProbe.initialDelaySeconds=2,securityContext.readOnlyRootFilesystem=null",
			"--set=podSecurityContext.supplementalGroups={5},extraArgs={--log-level=debug,--log-format=console}",
			"--set-string=annotations.a=1,podAnnotations.b=2,podLabels.c=3",
			`--set-json=extraEnv=[{"name":"A","value":"b"}]`, `--set-json=affinity={"nodeAffinity":{}}`,
			`--set-json=extraVolumes=[{"name":"v","emptyDir":{}}]`,
			`--set-json=extraVolumeMounts=[{"name":"v","mountPath":"/v"}]`,
			`--set-json=extraContainers=[{"name":"more","image":"more:1"}]`,
			`--set-json=topologySpreadConstraints=[{"maxSkew":2,"topologyKey":"rack","whenUnsatisfiable":"DoNotSchedule"}]`)
		must(t, err)
		deployment := pick(t, objects(t, manifest), "Deployment", release)
		limit, _, err := unstructured.NestedInt64(deployment.Object, "spec", "revisionHistoryLimit")
		must(t, err)
		if deployment.GetAnnotations()["a"] != "1" || limit != 3 {
			t.Errorf("%s: annotations %v, revisionHistoryLimit %d", mode, deployment.GetAnnotations(), limit)
		}
		pod := podsOf(t, []*unstructured.Unstructured{deployment})[0]
		c := pod.Spec.Containers[0]
		spread := pod.Spec.TopologySpreadConstraints
		if pod.Annotations["b"] != "2" || pod.Labels["c"] != "3" || c.LivenessProbe.PeriodSeconds != 7 ||
			c.LivenessProbe.FailureThreshold != 6 || c.ReadinessProbe.InitialDelaySeconds != 2 ||
			c.SecurityContext.ReadOnlyRootFilesystem != nil ||
			fmt.Sprint(pod.Spec.SecurityContext.SupplementalGroups) != "[5]" ||
			fmt.Sprint(c.Args[len(c.Args)-2:]) != "[--log-level=debug --log-format=console]" || c.Env[0].Value != "b" ||
			pod.Spec.Affinity.NodeAffinity == nil || len(pod.Spec.Containers) != 2 || pod.Spec.Containers[1].Image != "more:1" ||
			c.VolumeMounts[len(c.VolumeMounts)-1].MountPath != "/v" {
			t.Errorf("%s: the pod is %+v", mode, pod)
		}
		if len(spread) != 1 || spread[0].MaxSkew != 2 || !maps.Equal(spread[0].LabelSelector.MatchLabels,
			map[string]string{"app.kubernetes.io/name": release, "app.kubernetes.io/instance": release}) {
			t.Errorf("%s: the constraints are %+v", mode, spread)
		}
	}
}

// The notes of each mode name where a reason is to be found, and warn of what may not be meant.
func TestNotesNameReasonsAndDoubts(t *testing.T) {
	h := newHelm(t)
	const registry = "--set=image.registry=registry.test"
	for _, mode := range []string{"cluster", "loadShedding", "sidecar"} {
		notes := h.notes(t, "--set=mode="+mode, registry, "--set=tls.source=certManager,tls.certManager.issuerRef.name=ca")
		for _, want := range []string{"/readyz?verbose'\n",
			" logs --prefix --tail=-1 --selector=app.kubernetes.io/name=spillway",
			"helm -n " + namespace + " test " + release + " --logs\n"} {
			if !strings.Contains(notes, want) {
				t.Errorf("%s: the notes lack %q: %s", mode, want, notes)
			}
		}
		if account := "create rolebinding me --clusterrole=view --serviceaccount=default:me\n"; mode != "sidecar" &&
			(!strings.Contains(notes, account) || !strings.Contains(notes, "$(kubectl -n default create token me)")) {
			t.Errorf("%s: the notes lack an account that may list pods, and its token: %s", mode, notes)
		}
		if strings.Contains(notes, "WARNING") {
			t.Errorf("%s: the notes warn of good values: %s", mode, notes)
		}
	}
	for values, want := range map[string]string{
		"":                                        "The registry registry.example.com does not exist.",
		"image.registry=":                         "The image spillway:0.1.0 names no registry",
		"tls.source=generated":                    "Each render without a cluster makes a new CA",
		"replicaCount=1":                          "fewer than two replicas. While the pod is replaced, clients",
		"mode=sidecar,replicaCount=1":             "fewer than two replicas. While the pod is replaced, pods are created",
		"resources.limits.memory=null":            "Without a memory limit",
		"rbac.create=false":                       "The chart creates no roles",
		"kind=DaemonSet":                          "Set service.internalTrafficPolicy=Local",
		"podDisruptionBudget.maxUnavailable=0":    "keeps nodes with these pods from being drained",
		"service.internalTrafficPolicy=Local":     "Set kind=DaemonSet",
		"monitoring.prometheusRule.enabled=true":  "metrics of the job spillway-metrics",
		"fullnameOverride=a,image.repository=b/c": "Nodes cannot pull the image registry.example.com/b/c:0.1.0. The registry",
		"image.registry=registry.example.com/a":   "The registry registry.example.com/a does not exist.",
	} {
		if notes := h.notes(t, "--set="+values); !strings.Contains(notes, want) {
			t.Errorf("%s: the notes lack %q: %s", values, want, notes)
		}
	}
}

// Chart.yaml names the image that the chart installs, and what Artifact Hub shows.
func TestMetadataFitsTheChart(t *testing.T) {
	h := newHelm(t)
	text, err := os.ReadFile(filepath.Join(h.chart, "Chart.yaml"))
	must(t, err)
	var chart struct {
		Home, Version string
		Sources       []string
		Maintainers   []struct{ Name, URL string }
		Annotations   map[string]string
	}
	must(t, yaml.Unmarshal(text, &chart))
	if chart.Home == "" || len(chart.Sources) == 0 || len(chart.Maintainers) == 0 || chart.Maintainers[0].Name == "" {
		t.Errorf("home, sources or maintainers are missing: %+v", chart)
	}
	hub := func(key string) string { return chart.Annotations["artifacthub.io/"+key] }
	if hub("category") != "networking" || hub("license") != "Apache-2.0" ||
		hub("prerelease") != fmt.Sprint(strings.Contains(chart.Version, "-")) {
		t.Errorf("the annotations are %v", chart.Annotations)
	}
	var images []struct{ Name, Image string }
	must(t, yaml.Unmarshal([]byte(hub("images")), &images))
	manifest, err := h.template(t.Context())
	must(t, err)
	if installed := podsOf(t, objects(t, manifest))[0].Spec.Containers[0].Image; len(images) != 1 ||
		images[0].Image != installed {
		t.Errorf("the images are %v, and %s is installed", images, installed)
	}
	var changes []struct{ Kind, Description string }
	must(t, yaml.UnmarshalStrict([]byte(hub("changes")), &changes))
	for _, change := range changes {
		if !slices.Contains([]string{"added", "changed", "deprecated", "removed", "fixed", "security"}, change.Kind) ||
			change.Description == "" {
			t.Errorf("a change is %v", change)
		}
	}
	if len(changes) == 0 {
		t.Error("there are no changes")
	}
	if _, err := h.run(t.Context(), "lint", "--strict", h.chart); err != nil {
		t.Error(err)
	}
}

// podsOf are the pods of a manifest, and those that its Deployments and DaemonSets make.
func podsOf(t *testing.T, all []*unstructured.Unstructured) (pods []corev1.Pod) {
	t.Helper()
	for _, o := range all {
		switch o.GetKind() {
		case "Deployment", "DaemonSet":
			o = podOf(t, o.DeepCopy())
		case "Pod":
		default:
			continue
		}
		var pod corev1.Pod
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &pod))
		pods = append(pods, pod)
	}
	if len(pods) == 0 {
		t.Fatal("there are no pods")
	}
	return pods
}

// notes are what helm prints after an installation, here of one that it only tries.
func (h *helm) notes(t *testing.T, values ...string) string {
	t.Helper()
	text, err := h.run(t.Context(), append([]string{"install", release, h.chart, "--namespace=" + namespace,
		"--dry-run=client", "--set=tls.generated.withoutCluster=true"}, values...)...)
	must(t, err)
	_, notes, found := strings.Cut(text, "\nNOTES:\n")
	if !found {
		t.Fatal("there are no notes")
	}
	return notes
}
