package chart

import (
	"strings"
	"testing"

	"spillway/test/framework/controlplane"
)

// settings are values as operators set them, each a chart of its own.
var settings = map[string][]string{
	"defaults":       nil,
	"a daemon set":   {"--set=kind=DaemonSet,service.internalTrafficPolicy=Local"},
	"autoscaling":    {"--set=autoscaling.enabled=true,autoscaling.targetWatchesPerPod=5000"},
	"one replica":    {"--set=replicaCount=1,podDisruptionBudget.enabled=false"},
	"a given Secret": {"--set=tls.source=secret,tls.secretName=mine"},
	"cert-manager": {"--set=tls.source=certManager,tls.certManager.issuerRef.kind=ClusterIssuer",
		"--set=tls.certManager.issuerRef.name=ca"},
	"more names": {"--set=tls.extraNames={spillway.example.com},fullnameOverride=watch-proxy"},
	"client CA":  {"--set=clientCA.configMapName=clients"},
	"an audit log": {`--set-json=audit={"policy":{"rules":[{"level":"Metadata"}],` +
		`"omitStages":["RequestReceived"]},"failClosed":true}`},
	"traces": {"--set=tracing.endpoint=collector.monitoring:4317,tracing.samplingRatePerMillion=1000000",
		"--set=networkPolicy.enabled=true"},
	"audit logs kept": {`--set-json=audit={"policy":{"rules":[{"level":"Metadata"}]},` +
		`"volume":{"emptyDir":{"sizeLimit":"1Gi"}}}`},
	"audit logs shipped": {`--set-json=audit={"policy":{"rules":[{"level":"None","users":["a"],"resources":[{"group":"",` +
		`"resources":["pods"]}]},{"level":"Metadata"}]},"volume":{"emptyDir":{}}}`, "--set=autoscaling.enabled=true",
		`--set-json=extraContainers=[{"name":"shipper","image":"shipper:1","imagePullPolicy":"IfNotPresent",` +
			`"resources":{"requests":{"cpu":"10m"}},"lifecycle":{"preStop":{"sleep":{"seconds":45}}},` +
			`"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}},` +
			`"volumeMounts":[{"name":"audit","mountPath":"/var/log/spillway","readOnly":true}]}]`},
	"flow control": {"--set=flowControl.enabled=true"},
	"network policy": {"--set=networkPolicy.enabled=true",
		`--set-json=networkPolicy.clients=[{"namespaceSelector":{}}]`},
	"monitoring": {"--set=monitoring.serviceMonitor.enabled=true,monitoring.prometheusRule.enabled=true",
		"--set=monitoring.dashboard.enabled=true,monitoring.dashboard.annotations.grafana_folder=Kubernetes",
		`--set-json=rbac.metricsReaders=[{"kind":"ServiceAccount","name":"prometheus","namespace":"monitoring"}]`},
	"readers": {`--set-json=rbac.statusReaders=[{"kind":"Group","name":"operators",` +
		`"apiGroup":"rbac.authorization.k8s.io"}]`},
	"dual stack": {"--set=service.ipFamilyPolicy=PreferDualStack,service.trafficDistribution=PreferSameZone"},
	"local decisions": {"--set=config.authorizationLocalRBAC=true,config.authenticationLocalJWKS=pods",
		"--set=config.apiAudiences={https://kubernetes.default.svc},config.reauthorizationInterval=1m"},
	"everything": {"--set=mirror.resources={*},rbac.readEverything=true,config.maxResources=500"},
	"custom resources": {
		"--set=mirror.extraResources={pods,deployments.apps,widgets.v1.example.com,gadgets.v2beta1.example.com}"},
	"resources that the chart does not know": {"--set=mirror.resources={leasecandidates.coordination.k8s.io," +
		"mutatingadmissionpolicies.admissionregistration.k8s.io,deploy.example.com,jobsets.batch," +
		"podcertificaterequests.certificates.k8s.io,workloads.scheduling.k8s.io,devicetaintrules.resource.k8s.io}"},
	"an image": {"--set=image.registry=localhost:5000,image.digest=sha256:" +
		strings.Repeat("0a", 32), "--set=imagePullSecrets[0].name=pull,global.imagePullSecrets={pull,more}"},
	"no accounts": {"--set=serviceAccount.create=false,serviceAccount.name=mine,rbac.create=false"},
	"a node's": {"--set=nodeSelector.a=b,priorityClassName=system-cluster-critical",
		"--set=tolerations[0].operator=Exists",
		`--set-json=extraEnv=[{"name":"GOMEMLIMIT","value":"900MiB"}]`},
	"sidecars": {"--set=mode=sidecar,sidecar.extraArgs={--history-bytes=8Mi,--log-level=debug}",
		"--set=sidecar.resources.limits.memory=256Mi"},
	"sidecars, shut off": {"--set=mode=sidecar,networkPolicy.enabled=true,clientCA.configMapName=ca",
		"--set=webhook.clientAllowedNames={kube-apiserver}",
		`--set-json=networkPolicy.clients=[{"ipBlock":{"cidr":"10.0.0.0/28"}}]`},
	"sidecars, without rights": {"--set=mode=sidecar,webhook.namespaceLimits=ignore,sidecar.place=last",
		"--set=networkPolicy.enabled=true"},
	"sidecars, a given Secret": {"--set=mode=sidecar,webhook.failurePolicy=Fail,tls.source=secret,tls.secretName=mine",
		"--set-file=webhook.caBundle=testdata/ca.crt"},
	"sidecars, cert-manager": {"--set=mode=sidecar,tls.source=certManager",
		"--set=tls.certManager.issuerRef.kind=Issuer,tls.certManager.issuerRef.name=ca"},
	"OpenShift": {"--values=../../../charts/spillway/values.openshift.yaml",
		"--set=podDisruptionBudget.unhealthyPodEvictionPolicy=AlwaysAllow"},
	"sidecars, no exception": {"--set=mode=sidecar,webhook.failurePolicy=Fail",
		`--set-json=podLabels={"spillway.example.com/inject":"enabled"}`},
	"shedding": {"--set=mode=loadShedding,flowControl.enabled=true,config.maxWatchesPerUser=100",
		"--set=loadShedding.limits.maxPassthroughQPSPerUser=0.5"},
}

// Whatever is rendered, kube-apiserver takes as it is: no field that it does not know, no value
// that it would change its mind about.
func TestAPIServerStoresManifestsUnchanged(t *testing.T) {
	cp := startControlPlane(t)
	h := newHelm(t)
	for name, values := range settings {
		t.Run(name, func(t *testing.T) {
			manifest, err := h.template(t.Context(), values...)
			must(t, err)
			for _, how := range []string{"--dry-run=server", "--dry-run=none"} {
				if _, err := cp.KubectlInput(t.Context(), manifest, "apply", "--server-side", "--force-conflicts",
					"--validate=strict", how, "-f=-"); err != nil {
					t.Fatal(err)
				}
			}
			_, err = cp.KubectlInput(t.Context(), manifest, "delete", "--wait=false", "-f=-")
			must(t, err)
		})
	}
}

// Values that the chart does not know, or that do not fit together, are refused with what is wrong
// and where.
func TestBadValuesAreRefused(t *testing.T) {
	h := newHelm(t)
	for values, want := range map[string]string{
		"replicaCuont=2":   "'replicaCuont' not allowed",
		"replicaCount=two": "'/replicaCount': got string, want integer",
		"kind=StatefulSet": "'/kind': value must be one of 'Deployment', " +
			"'DaemonSet'",
		"mirror.resources={Pods}":                                "'/mirror/resources/0'",
		"mirror.resources={*}":                                   "needs rbac.readEverything=true",
		"config.listenTLS=:1":                                    "config.listenTLS: the chart sets this itself",
		"config.Listen=x":                                        "'Listen' not allowed",
		"config.historybytes=8Mi":                                "'historybytes' not allowed",
		"config.history-bytes=8Mi":                               "config.history-bytes is now config.historyBytes",
		"config.resources=pods":                                  "'/config/resources': got string, want array",
		"config.config=x":                                        "'config' not allowed",
		"config.maxWatches=-1":                                   "'/config/maxWatches': minimum: got -1, want 0",
		"config.stallTimeout=30":                                 "'/config/stallTimeout': got number, want string",
		"config.historyBytes=64MB":                               "'/config/historyBytes': '64MB' does not match pattern",
		"config.emulatedVersion=oldest":                          "'/config/emulatedVersion': value must be one of",
		"config.profiling=maybe":                                 "'/config/profiling': got string, want boolean",
		"mode=loadShedding,loadShedding.limits.maxWatches=some":  "'/loadShedding/limits/maxWatches'",
		"audit.failClosed=true":                                  "need audit.policy",
		"tracing.endpoint=http://a:1":                            "'/tracing/endpoint'",
		"tracing.endpoint=a:1,config.tracingConfigFile=x":        "config.tracingConfigFile: the chart sets this itself",
		"audit.policy.omitStages={Never}":                        "'/audit/policy/omitStages/0'",
		"audit.policy.rule=1":                                    "'rule' not allowed",
		"audit.policy.rules[0].level=None,config.auditLogPath=x": "config.auditLogPath: the chart sets this itself",
		"tls.source=none":                                        "'/tls/source': value must be one of",
		"tls.source=secret":                                      "tls.secretName is needed",
		"tls.source=certManager":                                 "tls.certManager.issuerRef is needed",
		"serviceAccount.create=false":                            "serviceAccount.name is needed",
		"image.digest=latest":                                    "'/image/digest'",
		"rbac.statusReaders[0].kind=Robot":                       "'/rbac/statusReaders/0",
		"monitoring.dashboard.enabled=maybe":                     "'/monitoring/dashboard/enabled'",
		"mode=both": "'/mode': value must be one of 'cluster', 'sidecar', " +
			"'loadShedding'",
		"mode=sidecar,kind=DaemonSet":                  "kind must be Deployment when mode is sidecar",
		"mode=sidecar,autoscaling.enabled=true":        "autoscaling.enabled has no meaning when mode is sidecar",
		"mode=sidecar,config.historyBytes=8Mi":         "config has no meaning when mode is sidecar",
		"mode=sidecar,sidecar.extraArgs={debug}":       "'/sidecar/extraArgs/0'",
		"mode=sidecar,sidecar.mirror.resources={Pods}": "'/sidecar/mirror/resources/0'",
		"mode=sidecar,webhook.namespaceLimits=some": "'/webhook/namespaceLimits': value must be one of " +
			"'read', 'ignore'",
		"mode=sidecar,sidecar.place=middle": "'/sidecar/place'",
		"mode=sidecar,webhook.failurePolicy=Ask": "'/webhook/failurePolicy': value must be one of " +
			"'Ignore', 'Fail'",
		"mode=sidecar,tls.source=secret,tls.secretName=a":       "webhook.caBundle is needed",
		"mode=loadShedding,loadShedding.limits.maxRequests=1":   "'maxRequests' not allowed",
		"mirror.resources={pods,configmap}":                     "mirror.resources: configmap: name its plural: configmaps",
		"mirror.resources={endpointslices}":                     "name its group: endpointslices.discovery.k8s.io",
		"mirror.resources={deployment.apps}":                    "name its plural: deployments.apps",
		"mirror.resources={networkpolicy.v1.networking.k8s.io}": "name its plural: networkpolicies.networking.k8s.io",
		"mirror.resources={widgets}":                            "widgets is no plural of the core group",
		"mirror.resources={deploy.apps}":                        "deploy.apps: name its plural: deployments.apps",
		"mirror.resources={sts.v1.apps}":                        "sts.v1.apps: name its plural: statefulsets.apps",
		"mirror.resources={po}":                                 "po: name its plural: pods",
		"mirror.resources={netpol}":                             "netpol: name its plural: networkpolicies.networking.k8s.io",
		"mirror.resources={deployment}":                         "deployment: name its plural: deployments.apps",
		"mirror.extraResources={deploymnts.apps}":               "deploymnts.apps: did you mean deployments.apps?",
		"mirror.resources={networkpolicys.networking.k8s.io}":   "did you mean networkpolicies.networking.k8s.io?",
		"mirror.resources={confgimaps}":                         "confgimaps: did you mean configmaps?",
		"mirror.resources={jobbs.batch}":                        "jobbs.batch: did you mean jobs.batch?",
		"mirror.resources={ev}":                                 "ev cannot be mirrored",
		"mirror.extraResources={pods,events}":                   "mirror.extraResources: events cannot be mirrored",
		"mirror.resources={events.v1.events.k8s.io}":            "events.v1.events.k8s.io cannot be mirrored",
		"enabled=maybe":                                         "'/enabled': got string, want boolean",
		"tls.generated.withoutCluster=false":                    "Set tls.source=certManager, or tls.source=secret",
		"podDisruptionBudget.unhealthyPodEvictionPolicy=No":     "'/podDisruptionBudget/unhealthyPodEvictionPolicy'",
		"podSecurityContext.runAsUser=0":                        "'/podSecurityContext/runAsUser'",
		"drainSeconds=0":                                        "'/drainSeconds'",
		"service.trafficDistribution=me":                        "'/service/trafficDistribution'",
		"autoscaling.enabled=true,kind=DaemonSet":               "autoscaling.enabled needs kind=Deployment",
	} {
		if _, err := h.template(t.Context(), "--set="+values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// What a pod runs as, the strictest Pod Security Standard takes.
func TestRestrictedPods(t *testing.T) {
	cp := startControlPlane(t)
	h := newHelm(t)
	_, err := cp.Kubectl(t.Context(), "label", "--overwrite", "namespace", namespace,
		"pod-security.kubernetes.io/enforce=restricted")
	must(t, err)
	for name, values := range settings {
		if name == "no accounts" {
			continue
		}
		manifest, err := h.template(t.Context(), values...)
		must(t, err)
		for _, o := range objects(t, manifest) {
			pod := o
			switch o.GetKind() {
			case "Deployment", "DaemonSet":
				pod = podOf(t, o)
			case "Pod":
			default:
				continue
			}
			pod.SetName("a")
			text, err := pod.MarshalJSON()
			must(t, err)
			if _, err := cp.KubectlInput(t.Context(), string(text), "create", "--dry-run=server", "-f=-"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func startControlPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	must(t, err)
	t.Cleanup(cp.Stop)
	_, err = cp.Kubectl(t.Context(), "create", "namespace", namespace)
	must(t, err)
	_, err = cp.Kubectl(t.Context(), "create", "-f=testdata/definitions.yaml")
	must(t, err)
	_, err = cp.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=1m", "customresourcedefinitions",
		"--all")
	must(t, err)
	return cp
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
