package objecttest

import (
	"fmt"
	"strings"
)

// ClusterPod is the JSON of the nth pod of a large cluster, as an API server writes it: of 3 to 4
// KiB, half of which are managed fields, in one of 200 namespaces and on one of 1000 nodes, and
// with the labels that its nineteen siblings have, too.
func ClusterPod(n int) []byte {
	deployment := n / 20
	app, hash := fmt.Sprintf("service-%d", deployment), fmt.Sprintf("%09x", deployment*2654435761%(1<<36))
	var settings, owned strings.Builder
	for i := range deployment % 9 {
		fmt.Fprintf(&settings, `,{"name":"SETTING_%d","value":"of-%s"}`, i, app)
		fmt.Fprintf(&owned, `,"k:{\"name\":\"SETTING_%d\"}":{".":{},"f:name":{},"f:value":{}}`, i)
	}
	return []byte(strings.NewReplacer(
		"$REPLICAS", app+"-"+hash, "$SUFFIX", fmt.Sprintf("%05x", n*40503%(1<<20)), "$NAMESPACE",
		fmt.Sprint("team-", deployment%200),
		"$UID", fmt.Sprintf("%012d", n), "$OWNER", fmt.Sprintf("%012d", deployment), "$VERSION", fmt.Sprint(1000+n), "$APP",
		app, "$HASH", hash,
		"$RELEASE", fmt.Sprint(deployment%7), "$NODE", fmt.Sprintf("node-%d.example", n%1000),
		"$SETTINGS", settings.String(), "$OWNED", owned.String(), "$THIRD", fmt.Sprint(n%250), "$FOURTH", fmt.Sprint(n%240),
	).Replace(clusterPod))
}

const clusterPod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"$REPLICAS-$SUFFIX",` +
	`"generateName":"$REPLICAS-",` +
	`"namespace":"team-$NAMESPACE","uid":"5c2f7a3e-9d41-4b0c-8e6f-$UID",` +
	`"resourceVersion":"$VERSION","generation":1,"creationTimestamp":"2026-05-04T09:31:22Z",` +
	`"labels":{"app.kubernetes.io/name":"$APP","app.kubernetes.io/part-of":"shop",` +
	`"pod-template-hash":"$HASH","topology.kubernetes.io/zone":"eu-west-1a"},` +
	`"annotations":{"prometheus.io/scrape":"true","prometheus.io/job":"$APP"},` +
	`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"$REPLICAS",` +
	`"uid":"77f0bd42-31c5-47a8-9f0e-$OWNER","controller":true,"blockOwnerDeletion":true}],` +
	`"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1",` +
	`"time":"2026-05-04T09:31:22Z","fieldsType":"FieldsV1","fieldsV1":` +
	`{"f:metadata":{"f:annotations":{".":{},"f:prometheus.io/job":{},"f:prometheus.io/scrape":{}},` +
	`"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/name":{},` +
	`"f:app.kubernetes.io/part-of":{},"f:pod-template-hash":{},"f:topology.kubernetes.io/zone":{}},` +
	`"f:ownerReferences":{".":{},"k:{\"uid\":\"77f0bd42-31c5-47a8-9f0e-$OWNER\"}":{}}},` +
	`"f:spec":{"f:containers":{"k:{\"name\":\"$APP\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"PORT\"}":{".":{},` +
	`"f:name":{},"f:value":{}}$OWNED},"f:image":{},"f:imagePullPolicy":{},` +
	`"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},` +
	`"f:name":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":` +
	`{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},` +
	`"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},` +
	`"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},` +
	`"f:terminationGracePeriodSeconds":{}}}}]},` +
	`"spec":{"containers":[{"name":"$APP","image":"registry.example/shop/service:1.$RELEASE.0",` +
	`"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"PORT","value":"8080"}$SETTINGS],` +
	`"resources":{"limits":{"memory":"512Mi"},"requests":{"cpu":"100m","memory":"512Mi"}},` +
	`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",` +
	`"imagePullPolicy":"IfNotPresent"}],` +
	`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst",` +
	`"serviceAccountName":"$APP","serviceAccount":"default","nodeName":"$NODE","securityContext":{},` +
	`"schedulerName":"default-scheduler","priority":0,"enableServiceLinks":true,` +
	`"preemptionPolicy":"PreemptLowerPriority"},"status":{"phase":"Running","conditions":[` +
	`{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-05-04T09:31:29Z"},` +
	`{"type":"PodScheduled","status":"True","lastProbeTime":null,` +
	`"lastTransitionTime":"2026-05-04T09:31:22Z"}],"hostIP":"10.0.$THIRD.$FOURTH","podIP":"10.$FOURTH.$FOURTH.7",` +
	`"podIPs":[{"ip":"10.$FOURTH.$FOURTH.7"}],"startTime":"2026-05-04T09:31:22Z","containerStatuses":[` +
	`{"name":"$APP","state":{"running":{"startedAt":"2026-05-04T09:31:28Z"}},"lastState":{},"ready":true,` +
	`"restartCount":0,"image":"registry.example/shop/service:1.$RELEASE.0",` +
	`"containerID":"containerd://9d3b$UID","started":true}],"qosClass":"Burstable"}}`
