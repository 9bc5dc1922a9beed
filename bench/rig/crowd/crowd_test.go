package crowd

import (
	"net/url"
	"strings"
	"testing"
)

// TestWritesReachTheirWatchers holds what is reckoned against what each member requests.
func TestWritesReachTheirWatchers(t *testing.T) {
	c := &Accounts{n: 2*perNamespace + perNamespace/2} // the last namespace is half full
	paths := c.objects()
	want := int64(0)
	for writes := range 3 * len(paths) {
		for watches := 1; watches <= Watches; watches++ {
			if watches == Watches {
				if got := c.Reached(writes, watches); got != want {
					t.Fatalf("%d writes reach %d, want %d", writes, got, want)
				}
			} else if c.Reached(writes, watches) > want {
				t.Fatalf("%d writes reach more of %d watches than of all", writes, watches)
			}
		}
		for member := range c.n {
			for _, target := range c.targets(member) {
				if selects(t, target, paths[writes%len(paths)]) {
					want++
				}
			}
		}
	}
}

// selects reports whether a path is that of an object in the collection that a target watches. All
// objects have the labels.
func selects(t *testing.T, target, path string) bool {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	if _, in, namespaced := strings.Cut(u.Path, "/namespaces/"); namespaced {
		return strings.Contains(path, "/namespaces/"+in+"/")
	}
	return strings.Contains(path, u.Path[strings.LastIndex(u.Path, "/"):]+"/")
}

func TestEachTenthMemberIsAStranger(t *testing.T) {
	c := &Accounts{n: 2 * perNamespace}
	abroad := 0
	for member := range c.n {
		if c.podsOf(member) != c.home(member) {
			abroad++
		}
	}
	if abroad != c.n/stranger {
		t.Errorf("%d of %d members watch pods of another namespace", abroad, c.n)
	}
}
