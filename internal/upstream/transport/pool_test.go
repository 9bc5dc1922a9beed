package transport

import (
	"testing"

	"k8s.io/client-go/rest"
)

func TestPoolForgetsIdleLinks(t *testing.T) {
	p := factoryOf(t, &rest.Config{Host: "https://127.0.0.1:1"}).Links()
	a, err := p.Take()
	if err != nil {
		t.Fatal(err)
	}
	p.Put(a)
	if b, _ := p.Take(); b != a {
		t.Error("an idle link was not used again")
	}
	p.Put(a)
	a.idleSince = a.idleSince.Add(-linkIdleTimeout)
	if b, _ := p.Take(); b == a {
		t.Error("a link was used after too long")
	}
	for range linkLimit + 3 {
		p.Put(&Link{RoundTripper: a.RoundTripper})
	}
	if len(p.links) != linkLimit {
		t.Errorf("%d links are kept", len(p.links))
	}
	p.Close()
	p.Put(a)
	if len(p.links) != 0 {
		t.Error("a closed pool keeps links")
	}
}
