package memory

import (
	"testing"
	"testing/fstest"
)

// Where control groups are of version 1, a container without a limit of its own has none, whatever
// the groups above it have.
func TestOwnGroupWithoutLimit(t *testing.T) {
	const none, some = "9223372036854771712\n", "134217728\n"
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	v1 := file("9:cpu,cpuacct:/\n4:memory:/kubepods/pod1/a\n1:name=systemd:/\n")
	for name, c := range map[string]struct {
		root fstest.MapFS
		want bool
	}{
		"a container without a limit": {fstest.MapFS{"proc/self/cgroup": v1,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file(none)}, true},
		"a container with one": {fstest.MapFS{"proc/self/cgroup": v1,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file(some)}, false},
		"a service of a machine with one": {fstest.MapFS{
			"proc/self/cgroup": v1, "sys/fs/cgroup/memory/memory.limit_in_bytes": file(none),
			"sys/fs/cgroup/memory/kubepods/pod1/a/memory.limit_in_bytes": file(some),
		}, false},
		"version 2":       {fstest.MapFS{"proc/self/cgroup": file("0::/\n")}, false},
		"nothing mounted": {fstest.MapFS{"proc/self/cgroup": v1}, false},
		"no groups":       {fstest.MapFS{}, false},
	} {
		if got := isOwnGroupUnlimited(c.root); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
