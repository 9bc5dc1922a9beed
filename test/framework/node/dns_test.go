package node

import (
	"fmt"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// someNames has a Service with an address, and one without.
func someNames(t testing.TB) *names {
	t.Helper()
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	services, slices := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers),
		cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "a", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}
	}
	for name, address := range map[string]string{"web": "10.0.0.1", "db": corev1.ClusterIPNone} {
		if err := services.Add(&corev1.Service{ObjectMeta: meta(name),
			Spec: corev1.ServiceSpec{ClusterIP: address}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := slices.Add(&discoveryv1.EndpointSlice{ObjectMeta: meta("db"), Endpoints: []discoveryv1.Endpoint{
		{Addresses: []string{"10.1.0.1"}, Hostname: ptr.To("db-0")},
		{Addresses: []string{"10.1.0.2"}, Hostname: ptr.To("db-1")},
		{Addresses: []string{"10.1.0.3"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}},
	}}); err != nil {
		t.Fatal(err)
	}
	return &names{services: corelisters.NewServiceLister(services),
		endpoints: discoverylisters.NewEndpointSliceLister(slices)}
}

func TestLookup(t *testing.T) {
	n := someNames(t)
	for name, want := range map[string]string{
		"web.a.svc.cluster.local.":       "[10.0.0.1] true",
		"WEB.A.svc.cluster.local.":       "[10.0.0.1] true",
		"db.a.svc.cluster.local.":        "[10.1.0.1 10.1.0.2] true",
		"db-1.db.a.svc.cluster.local.":   "[10.1.0.2] true",
		"db-2.db.a.svc.cluster.local.":   "[] false",
		"web.b.svc.cluster.local.":       "[] false",
		"x.db-1.db.a.svc.cluster.local.": "[] false",
		"svc.cluster.local.":             "[] false",
		"example.com.":                   "[] false",
		".":                              "[] false",
	} {
		addresses, exists := n.lookup(name)
		if got := fmt.Sprint(addresses, " ", exists); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func query(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	packed, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: 7},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind,
			Class: dnsmessage.ClassINET}}}).Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func TestAnswer(t *testing.T) {
	n := someNames(t)
	for _, c := range []struct {
		name    string
		kind    dnsmessage.Type
		code    dnsmessage.RCode
		answers int
	}{
		{"db.a.svc.cluster.local.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 2},
		{"db.a.svc.cluster.local.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, 0},
		{"no.a.svc.cluster.local.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
	} {
		var reply dnsmessage.Message
		if err := reply.Unpack(n.answer(query(t, c.name, c.kind))); err != nil {
			t.Fatal(err)
		}
		if reply.ID != 7 || !reply.Response || reply.RCode != c.code || len(reply.Answers) != c.answers {
			t.Errorf("%s %v: %v", c.name, c.kind, reply.GoString())
		}
	}
}

// FuzzAnswer: no query makes the server panic, and an answer is one to the query.
func FuzzAnswer(f *testing.F) {
	n := someNames(f)
	f.Add(query(f, "web.a.svc.cluster.local.", dnsmessage.TypeA))
	f.Add([]byte("\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		answer := n.answer(packet)
		if answer == nil {
			return
		}
		var reply dnsmessage.Message
		if err := reply.Unpack(answer); err != nil || !reply.Response || len(reply.Questions) != 1 {
			t.Errorf("%v: %v", err, reply.GoString())
		}
	})
}
