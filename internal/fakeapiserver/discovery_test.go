package fakeapiserver

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

func TestDiscovery(t *testing.T) {
	s := server(t, Options{})
	client := s.Client()
	t.Cleanup(client.CloseIdleConnections)
	d, err := discovery.NewDiscoveryClientForConfigAndClient(s.Config(), client)
	if err != nil {
		t.Fatal(err)
	}
	groups, lists, err := d.ServerGroupsAndResources()
	if err != nil || len(groups) != 4 {
		t.Fatalf("groups: %v %v", groups, err)
	}
	verbs := map[string]string{}
	for _, l := range lists {
		for _, r := range l.APIResources {
			verbs[l.GroupVersion+"/"+r.Name] = r.Verbs.String()
		}
	}
	if !strings.Contains(verbs["example.com/v1/widgets"], "watch") ||
		!strings.Contains(verbs["apps/v1/deployments"], "list") ||
		verbs["v1/componentstatuses"] != "[get list]" {
		t.Errorf("verbs: %v", verbs)
	}
	s.SetKubernetes(Kubernetes{Version: "v1.38.0"})
	if v, err := d.ServerVersion(); err != nil || v.GitVersion != "v1.38.0" || v.Minor != "38" {
		t.Errorf("version: %v %v", v, err)
	}
	wantBody(t, get(t, s, "/readyz"), 200, "ok")
	var g metav1.APIGroup
	if err := json.Unmarshal(get(t, s, "/apis/apps").Body, &g); err != nil || g.Name != "apps" {
		t.Errorf("group: %v %v", g, err)
	}
}
