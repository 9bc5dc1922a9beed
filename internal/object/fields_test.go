package object

import "testing"

func TestFields(t *testing.T) {
	f := func(r *Resource, members string, want map[string]string) {
		t.Helper()
		o := mustParse(t, r, `{"metadata":{"name":"a","namespace":"n","resourceVersion":"7"}`+members+`}`)
		for label, value := range want {
			if !o.Fields().Has(label) || o.Fields().Get(label) != value {
				t.Errorf("%s %s: %s is %q (%v), want %q", r, members, label, o.Fields().Get(label), o.Fields().Has(label), value)
			}
		}
	}
	f(pods, ``, map[string]string{
		"metadata.name": "a", "metadata.namespace": "n", "spec.nodeName": "", "spec.host": "", "spec.restartPolicy": "",
		"spec.schedulerName": "", "spec.serviceAccountName": "", "spec.hostNetwork": "false", "status.phase": "",
		"status.podIP": "", "status.podIPs": "", "status.nominatedNodeName": "",
	})
	f(pods, `,"spec":{"nodeName":"node-1","restartPolicy":"Always","schedulerName":"s","serviceAccountName":"sa",`+
		`"hostNetwork":true},`+
		`"status":{"phase":"Running","podIP":"1.2.3.4","podIPs":[{"ip":"1.2.3.4"}],"nominatedNodeName":"node-2"}`,
		map[string]string{
			"spec.nodeName": "node-1", "spec.host": "node-1", "spec.restartPolicy": "Always", "spec.schedulerName": "s",
			"spec.serviceAccountName": "sa", "spec.hostNetwork": "true", "status.phase": "Running", "status.podIP": "1.2.3.4",
			"status.podIPs": "", "status.nominatedNodeName": "node-2",
		})
	// A member of the same name elsewhere is not the field, and null is absent.
	f(pods, `,"nodeName":"x","spec":{"spec":{"nodeName":"x"},"containers":[{"nodeName":"x"}],"hostNetwork":null,`+
		`"nodeName":null}`,
		map[string]string{"spec.nodeName": "", "spec.hostNetwork": "false"})
	f(pods, `,"spec":{"nodeName":{"a":1}},"status":[]`, map[string]string{"spec.nodeName": "", "status.phase": ""})
	f(pods, `,"spec":{"nodeName":"\u0061\"ü"}`, map[string]string{"spec.nodeName": `a"ü`, "spec.host": `a"ü`})
	// The last of two wins.
	f(pods, `,"spec":{"nodeName":"x","nodeName":"y"},"status":{"phase":"A"},"status":{"podIP":"1"}`,
		map[string]string{"spec.nodeName": "y", "spec.host": "y", "status.phase": "A", "status.podIP": "1"})

	f(nodes, ``, map[string]string{"metadata.name": "a", "spec.unschedulable": "false"})
	f(nodes, `,"spec":{"unschedulable":true}`, map[string]string{"spec.unschedulable": "true"})
	f(builtin("", "namespaces", "Namespace", false), `,"status":{"phase":"Active"}`,
		map[string]string{"status.phase": "Active"})
	f(builtin("", "secrets", "Secret", true), `,"type":"Opaque"`, map[string]string{"type": "Opaque"})
	f(builtin("", "services", "Service", true), `,"spec":{"clusterIP":"None","type":"ClusterIP"}`,
		map[string]string{"spec.clusterIP": "None", "spec.type": "ClusterIP"})
	f(builtin("", "replicationcontrollers", "ReplicationController", true), `,"status":{"replicas":3}`,
		map[string]string{"status.replicas": "3"})
	f(builtin("", "replicationcontrollers", "ReplicationController", true), ``, map[string]string{"status.replicas": "0"})
	f(builtin("batch", "jobs", "Job", true), ``, map[string]string{"status.successful": "0"})
	f(builtin("batch", "jobs", "Job", true), `,"status":{"succeeded":12}`, map[string]string{"status.successful": "12"})
	f(builtin("resource.k8s.io", "resourceslices", "ResourceSlice", false),
		`,"spec":{"driver":"d","pool":{"name":"p","generation":1}}`,
		map[string]string{"spec.nodeName": "", "spec.driver": "d", "spec.pool.name": "p"})
	f(builtin("certificates.k8s.io", "podcertificaterequests", "PodCertificateRequest", true),
		`,"spec":{"signerName":"s","podName":"p","nodeName":"n"}`,
		map[string]string{"spec.signerName": "s", "spec.podName": "p", "spec.nodeName": "n"})

	f(widgets, ``, map[string]string{"spec.size": "", "spec.deep.on": "", "metadata.namespace": "n"})
	f(widgets, `,"spec":{"deep":{"on":true},"size":3}`, map[string]string{"spec.size": "3", "spec.deep.on": "true"})
	f(widgets, `,"spec":{"deep":{"on":false},"size":-12}`, map[string]string{"spec.size": "-12", "spec.deep.on": "false"})
	f(widgets, `,"spec":{"deep":"no","size":"big"}`, map[string]string{"spec.size": "big", "spec.deep.on": ""})
}

// Which labels a field selector may name is upstream's table (W-152).
func TestSelectable(t *testing.T) {
	f := func(r *Resource, label string, want bool) {
		t.Helper()
		if r.Selectable(label) != want {
			t.Errorf("%s: %s selectable is %v", r, label, !want)
		}
	}
	for _, r := range []*Resource{pods, nodes, deployments, widgets, gadgets} {
		f(r, "metadata.name", true)
		f(r, "zzz", false)
		f(r, "", false)
		f(r, "metadata.uid", false)
	}
	f(pods, "metadata.namespace", true)
	f(pods, "status.podIPs", true)
	f(pods, "spec.host", true)
	f(nodes, "metadata.namespace", false)
	f(builtin("", "namespaces", "Namespace", false), "metadata.namespace", false)
	f(builtin("", "namespaces", "Namespace", false), "name", false)
	f(builtin("certificates.k8s.io", "podcertificaterequests", "PodCertificateRequest", true), "metadata.namespace", false)
	f(builtin("resource.k8s.io", "resourceslices", "ResourceSlice", false), "metadata.namespace", false)
	f(builtin("", "persistentvolumes", "PersistentVolume", false), "metadata.namespace", true)
	f(deployments, "metadata.namespace", true)
	f(deployments, "spec.replicas", false)
	f(widgets, "metadata.namespace", true)
	f(widgets, "spec.size", true)
	f(gadgets, "metadata.namespace", false)
	if o := mustParse(t, gadgets, `{"metadata":{"name":"a","resourceVersion":"1"}}`); o.Fields().Has("zzz") ||
		o.Fields().Get("zzz") != "" {
		t.Error("an unknown field has a value")
	}
}
