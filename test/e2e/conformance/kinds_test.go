package conformance

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"spillway/test/framework/process"
)

// kinds is the namespace in which there is one object of every kind.
const kinds = "kinds"

// kind is a resource that the control plane serves.
type kind struct {
	schema.GroupVersionResource
	namespaced bool
	mirrored   bool
	object     string // the name of one of them
}

// testKinds makes an object of every resource that discovery names, and requests it in every way
// there is through a proxy that mirrors all of them. A resource without objects fails: a new one
// must have an object in testdata/kinds.yaml.
func (s *suite) testKinds(t *testing.T) {
	s.makeNamespace(t, kinds)
	s.makeOddities(t)
	served := s.servedKinds(t)
	s.makeKinds(t, served)
	_, err := s.dynamic.Resource(widgets).Namespace(kinds).Create(t.Context(), widget("kind", "red", 1),
		metav1.CreateOptions{})
	must(t, err)
	// before they are mirrored: a consistent list takes upstream's memory to revisions that a watch
	// does not receive
	s.oneOfEach(t, served)
	var names []string
	for _, k := range served {
		if k.mirrored {
			names = append(names, k.mirrorName())
		}
	}
	p := process.StartProxy(t, process.BuildProxy(t), "--resources="+strings.Join(names, ","), "--kubeconfig="+s.proxies,
		"--listen-identity=self", "--listen-allow-connect")
	e := newEndpoint("every kind", p.Plain, &rest.Config{Host: p.Plain})
	e.metrics = p.Metrics
	awaitMirrors(t, e, served)
	t.Logf("%d resources, of which %d are mirrored", len(served), len(names))
	t.Run("asked", func(t *testing.T) {
		for _, k := range served {
			s.runAll(t, e, k.scenarios())
		}
		s.runAll(t, e, oddities())
	})
}

// awaitMirrors waits until the proxy answers for every kind from memory: it may be after the groups
// before, which define resources and hand them over, that it learns what has become of one of them,
// and then it lets that one pass through for seconds.
func awaitMirrors(t *testing.T, e *endpoint, served []*kind) {
	t.Helper()
	for _, k := range served {
		if began := time.Now(); k.mirrored {
			awaitMirror(t, e, k.collection())
			if took := time.Since(began); took > time.Second {
				t.Logf("%v was mirrored after %s", k.GroupVersionResource, took.Round(time.Millisecond))
			}
		}
	}
}

// servedKinds are the resources that can be listed, in all their versions.
func (s *suite) servedKinds(t *testing.T) []*kind {
	t.Helper()
	_, lists, err := s.client.Discovery().ServerGroupsAndResources()
	if failed, some := discovery.GroupDiscoveryFailedErrorGroups(err); some { // other servers may be gone already
		for gv, err := range failed {
			if gv.Group != otherGroup && gv.Group != takenGroup {
				t.Fatal(gv, err)
			}
		}
	} else {
		must(t, err)
	}
	var all []*kind
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		must(t, err)
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || gv.Group == "metrics.k8s.io" {
				continue
			}
			k := &kind{GroupVersionResource: gv.WithResource(r.Name), namespaced: r.Namespaced}
			k.mirrored = slices.Contains(r.Verbs, "watch") && r.Name != "events"
			all = append(all, k)
		}
	}
	return all
}

// mirrorName is the name of a resource in the proxy's flags.
func (k *kind) mirrorName() string {
	if k.Group == "" {
		return k.Resource
	}
	return k.Resource + "." + k.Version + "." + k.Group
}

// makeKinds creates what testdata/kinds.yaml says.
func (s *suite) makeKinds(t *testing.T, served []*kind) {
	t.Helper()
	text, err := os.ReadFile("testdata/kinds.yaml")
	must(t, err)
	text = []byte(certificates(t).Replace(string(text)))
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(o); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		gvr, namespaced := resourceOf(t, s, o)
		if !slices.ContainsFunc(served, func(k *kind) bool { return k.GroupVersionResource == gvr }) {
			continue // not by this control plane
		}
		client := s.dynamic.Resource(gvr)
		if namespaced {
			_, err = client.Namespace(kinds).Create(t.Context(), o, metav1.CreateOptions{})
		} else {
			_, err = client.Create(t.Context(), o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Errorf("%s %s: %v", o.GetAPIVersion(), o.GetKind(), err)
		}
	}
}

// resourceOf finds the resource of an object's kind.
func resourceOf(t *testing.T, s *suite, o *unstructured.Unstructured) (schema.GroupVersionResource, bool) {
	t.Helper()
	list, err := s.client.Discovery().ServerResourcesForGroupVersion(o.GetAPIVersion())
	if err != nil {
		return schema.GroupVersionResource{}, false // not served
	}
	for _, r := range list.APIResources {
		if r.Kind == o.GetKind() && !strings.Contains(r.Name, "/") {
			return o.GroupVersionKind().GroupVersion().WithResource(r.Name), r.Namespaced
		}
	}
	return schema.GroupVersionResource{}, false
}

// oneOfEach finds the name of an object of every resource.
func (s *suite) oneOfEach(t *testing.T, served []*kind) {
	t.Helper()
	for _, k := range served {
		list, err := s.dynamic.Resource(k.GroupVersionResource).Namespace(k.namespace()).List(t.Context(),
			metav1.ListOptions{})
		must(t, err)
		if len(list.Items) == 0 {
			t.Errorf("there is no object of %v: testdata/kinds.yaml must have one", k.GroupVersionResource)
			continue
		}
		k.object = list.Items[0].GetName()
	}
}

func (k *kind) namespace() string {
	if k.namespaced {
		return kinds
	}
	return ""
}

// collection is the path of the objects: all of them, or those in the one namespace.
func (k *kind) collection() string {
	path := "/api/" + k.Version
	if k.Group != "" {
		path = "/apis/" + k.Group + "/" + k.Version
	}
	if k.namespaced {
		path += "/namespaces/" + kinds
	}
	return path + "/" + k.Resource
}

// typed reports that client-go has the resource's type, without which a comparison cannot read it
// in protobuf.
func (k *kind) typed() bool {
	return !strings.Contains(k.Group, "example.com") && k.Group != "apiregistration.k8s.io"
}

// annotated reports that the API server keeps in annotations what the version has no fields for,
// and leaves them out of metadata alone (W-45).
func (k *kind) annotated() bool {
	return k.Group == "apps" && (k.Resource == "daemonsets" || k.Resource == "deployments") ||
		k.Group == "autoscaling" && k.Version == "v1"
}

// scenarios request a resource as a list, an object and a watch, in every format.
func (k *kind) scenarios() []scenario {
	const rv, watching = "?resourceVersion=0", "&watch=1&timeoutSeconds=3&allowWatchBookmarks=true"
	path, from := k.collection(), memory
	if !k.mirrored {
		from = upstream
	}
	ask := func(name, rules, target, accept string) scenario {
		by := from
		_, partial, _ := strings.Cut(accept, ";")
		switch {
		case partial != "" && k.annotated(), accept == yamlType:
			by = upstream
		case accept == protobufType && k.Group == "apiextensions.k8s.io":
			by = upstream // the types of definitions are not client-go's
		}
		return get(name, rules, target, by, anyStatus).with("Accept", accept)
	}
	object := path + "/" + k.object
	all := []scenario{
		ask("list", "W-8 W-60 W-235", path+rv, jsonType),
		ask("object", "W-8 W-95 W-235", object+rv, jsonType),
		ask("list in YAML", "W-47 W-235", path+rv, yamlType),
		ask("partial list", "W-45", path+rv, jsonType+asPartials),
		ask("partial object", "W-45", object+rv, jsonType+asPartial),
		ask("partial list in protobuf", "W-45 W-133", path+rv, protobufType+asPartials),
		get("unknown field", "W-152 W-154", path+rv+"&fieldSelector=zzz%3D1", upstream, anyStatus),
		// memory, of what is in one
		get("namespace as a field", "W-152", path+rv+"&fieldSelector=metadata.namespace%3D"+kinds, either, anyStatus),
	}
	if k.typed() {
		all = append(all,
			ask("list in protobuf", "W-133 W-235", path+rv, protobufType),
			ask("object in protobuf", "W-133 W-235", object+rv, protobufType))
	}
	if k.mirrored {
		all = append(all,
			ask("watch", "W-8 W-100 W-110 W-130", path+rv+watching, jsonType),
			ask("partial watch", "W-45 W-110 W-118", path+rv+watching, jsonType+asPartial),
			ask("partial watch in protobuf", "W-110 W-118 W-132", path+rv+watching, protobufType+asPartial))
		if k.typed() {
			all = append(all, ask("watch in protobuf", "W-110 W-132", path+rv+watching, protobufType))
		}
	}
	if k.Resource == "componentstatuses" { // if k.Resource == "componentstatuses" { // each GET makes it
		for i := range all {
			all[i].clocked = true
		}
	}
	return over(k.GroupVersion().String()+" "+k.Resource, all)
}

// certificates makes what certificate kinds want to see: a request, one without content, and a
// certificate.
func certificates(t *testing.T) *strings.Replacer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	request, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "nobody"}}, key)
	must(t, err)
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nobody"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	quoted, err := json.Marshal(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	must(t, err)
	return strings.NewReplacer(
		"${request}", base64.StdEncoding.EncodeToString(
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})),
		"${stub}", base64.StdEncoding.EncodeToString(stub),
		"${certificate}", strings.Trim(string(quoted), `"`),
	)
}
