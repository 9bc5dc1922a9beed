package simulation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/object"
)

var pods = object.NewResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true, true)

// version is one version of one object, as the truth has it: nothing here is read from what is
// tested.
type version struct {
	namespace, name, app, node string
	uid, rv                    uint64
	padding                    int
	text                       string // as upstream wrote it
}

func (v *version) key() string { return v.namespace + "/" + v.name }

func (v *version) String() string { return fmt.Sprintf("%s@%d", v.key(), v.rv) }

// json is the version as upstream writes it, at a resourceVersion that is its own unless it is
// deleted.
func (v *version) json(rv uint64) string {
	if rv == v.rv && v.text != "" {
		return v.text
	}
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1",`+
		`"metadata":{"name":%q,"namespace":%q,"uid":"uid-%d","resourceVersion":"%d",`+
		`"labels":{"app":%q}},"spec":{"nodeName":%q,"pad":%q}}`,
		v.name, v.namespace, v.uid, rv, v.app, v.node, strings.Repeat("x", v.padding))
}

// object is what the reflector makes of the version.
func (v *version) object(rv uint64) *object.Object {
	o, err := pods.Parse([]byte(v.json(rv)))
	if err != nil {
		panic(err) // the simulation's own JSON
	}
	return o
}

// write is one change of the resource upstream: a creation has no old version, a deletion no new
// one.
type write struct {
	rv       uint64
	old, new *version
}

// upstream is the truth: every write to the resource, in order. Other resources share the counter
// of resourceVersions.
type upstream struct {
	rand    *rand.Rand
	rv, uid uint64
	lowest  uint64 // what it was put back to since the last list
	// restores is how often it was put back.
	restores int
	padding  int
	state    map[string]*version
	writes   []write
	made     map[identity]bool // in all timelines
}

// identity is what differs between versions. After a restore upstream could make another version of
// the same identity; no observer could recognise that, so it does not.
type identity struct{ uid, rv uint64 }

func newUpstream(r *rand.Rand, padding int) *upstream {
	return &upstream{rand: r, rv: 1000, lowest: math.MaxUint64, padding: padding, state: map[string]*version{},
		made: map[identity]bool{}}
}

func (u *upstream) step() {
	switch n := u.rand.IntN(400); {
	case n < 240:
		u.write()
	case n < 300:
		u.rv += uint64(u.rand.IntN(3)) // others
	case n < 301:
		u.restore(u.rand.IntN(40))
	}
}

// write makes a random write.
func (u *upstream) write() {
	v := &version{namespace: pick(u.rand, "a", "b", "c"), name: fmt.Sprintf("p%d", u.rand.IntN(6))}
	old := u.state[v.key()]
	if old != nil && u.rand.IntN(4) == 0 {
		u.remove(v.key())
		return
	}
	v.app, v.node = pick(u.rand, "web", "db", ""), pick(u.rand, "n1", "n2", "")
	v.padding = u.rand.IntN(u.padding + 1)
	u.put(v)
}

// put creates an object or gives it a new version.
func (u *upstream) put(v *version) {
	old := u.state[v.key()]
	if old != nil {
		v.uid = old.uid
	} else {
		u.uid++
		v.uid = u.uid
	}
	for u.rv++; u.made[identity{v.uid, u.rv}]; u.rv++ {
	}
	v.rv = u.rv
	u.made[identity{v.uid, v.rv}] = true
	v.text = v.json(v.rv)
	u.state[v.key()] = v
	u.writes = append(u.writes, write{rv: u.rv, old: old, new: v})
}

func (u *upstream) remove(key string) {
	u.rv++
	u.writes = append(u.writes, write{rv: u.rv, old: u.state[key]})
	delete(u.state, key)
}

// restore brings back an etcd of some writes ago. What is written from now on reuses
// resourceVersions.
func (u *upstream) restore(writes int) {
	u.restores++
	for ; writes > 0 && len(u.writes) > 0; writes-- {
		last := u.writes[len(u.writes)-1]
		u.writes = u.writes[:len(u.writes)-1]
		u.rv = last.rv - 1
		u.lowest = min(u.lowest, u.rv)
		if last.old == nil {
			delete(u.state, last.new.key())
			continue
		}
		u.state[last.old.key()] = last.old
	}
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }
