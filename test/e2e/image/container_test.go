package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spillway/test/framework/process"
)

// container is a program in a container of runc's, in this machine's network: with a root that
// cannot be written, no capabilities, and no way to more rights. It is in a PID namespace whose
// first process is our child, so that it ends with us, which runc by itself does not see to.
type container struct {
	child *process.Child
	log   *process.Log
	args  []string
}

// startContainer starts an image's entry point with args. A file that an argument names
// (--flag=/file) is there too.
func startContainer(t *testing.T, root string, s settings, args ...string) *container {
	t.Helper()
	bundle := t.TempDir()
	spec := exec.CommandContext(t.Context(), "runc", "spec", "--bundle="+bundle)
	if out, err := spec.CombinedOutput(); err != nil {
		t.Fatalf("runc spec: %v: %s", err, out)
	}
	c := &container{log: process.NewLog(t), args: append(slices.Clone(s.Config.Entrypoint), args...)}
	c.configure(t, filepath.Join(bundle, "config.json"), root, s)
	state := t.TempDir()
	cmd := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
		"runc", "--root="+state, "run", "--bundle="+bundle, "spillway-"+strings.ReplaceAll(strings.Trim(bundle, "/"), "/",
			"-"))
	child, err := process.Start(cmd, nil, c.log.File)
	must(t, err)
	c.child = child
	t.Cleanup(func() {
		child.Kill()
		if t.Failed() {
			c.log.Show(t)
		}
	})
	return c
}

// configure makes of runc's own proposal, as the OCI's runtime-spec names it, what is meant here.
func (c *container) configure(t *testing.T, path, root string, s settings) {
	t.Helper()
	var config map[string]any
	must(t, json.Unmarshal([]byte(read(t, path)), &config))
	var uid, gid int
	if _, err := fmt.Sscanf(s.Config.User, "%d:%d", &uid, &gid); err != nil {
		t.Fatalf("the image's user is %q: %v", s.Config.User, err)
	}
	config["root"] = map[string]any{"path": root, "readonly": true}
	running := config["process"].(map[string]any)
	running["args"], running["terminal"], running["user"] = c.args, false, map[string]any{"uid": uid, "gid": gid}
	running["capabilities"], running["noNewPrivileges"] = map[string]any{}, true

	linux := config["linux"].(map[string]any)
	linux["namespaces"] = slices.DeleteFunc(linux["namespaces"].([]any), func(n any) bool {
		return slices.Contains([]any{"network", "pid", "cgroup"}, n.(map[string]any)["type"])
	})
	mounts := slices.DeleteFunc(config["mounts"].([]any), func(m any) bool {
		return m.(map[string]any)["type"] == "cgroup"
	})
	for _, arg := range c.args {
		if _, file, ok := strings.Cut(arg, "="); ok && filepath.IsAbs(file) {
			mounts = append(mounts, map[string]any{"destination": file, "source": file, "type": "bind",
				"options": []string{"bind", "ro"}})
		}
	}
	config["mounts"] = mounts
	text, err := json.Marshal(config)
	must(t, err)
	must(t, os.WriteFile(path, text, 0o600))
}

// answers sends a GET to a URL made of the addresses in the log.
func (c *container) answers(url func(process.Addresses) string) func(context.Context) error {
	return func(ctx context.Context) error {
		if c.child.Ended() {
			return fmt.Errorf("it ended: %v: %s", c.child.Err, c.log.Text())
		}
		return process.ExpectOK(ctx, url(c.log.Addresses()))
	}
}

// process is the container's own process, by the number that it has for us: runc knows it by
// another.
func (c *container) process(t *testing.T) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, path := range all {
		line, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || string(line) != strings.Join(c.args, "\x00")+"\x00" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		must(t, err)
		return pid
	}
	t.Fatalf("no process is %q", c.args)
	return 0
}
