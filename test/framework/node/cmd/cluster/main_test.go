package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"spillway/test/framework/node"
	"spillway/test/framework/process"
)

// asCommand is a variable of the environment with which the test's program is the command.
const asCommand = "CLUSTER_TEST_COMMAND"

func TestMain(m *testing.M) {
	node.Main()
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestPrintedScriptInstallsSpillway runs what the command prints, as it is printed, in a shell that
// knows nothing else. The command then ends by SIGINT and leaves nothing.
func TestPrintedScriptInstallsSpillway(t *testing.T) {
	node.Require(t)
	dir := t.TempDir()
	spillway := filepath.Join(dir, "spillway")
	build := exec.CommandContext(t.Context(), "make", "--directory="+process.Repository(t), "build", "BINARY="+spillway)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	write := func(name, archive string) {
		t.Helper()
		if err := (node.Image{Name: name, Program: spillway, User: user}).Write(filepath.Join(dir, archive)); err != nil {
			t.Fatal(err)
		}
	}
	write("localhost/early:1", "early.tar")
	write("localhost/late:1", "image.tar") // as the script names it

	log, printed := process.NewLog(t), process.NewLog(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", `exec "$@" >"$0"`, printed.File.Name(), exe, "-nodes=2", "-spillway="+spillway,
		filepath.Join(dir, "early.tar"))
	cmd.Env = append(os.Environ(), asCommand+"=true")
	command, err := process.Start(cmd, nil, log.File)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Stop(process.Patience)
		if t.Failed() {
			log.Show(t)
		}
	})
	process.Awaiting(t, "the nodes", func(context.Context) error {
		if command.Ended() {
			t.Fatal("the command has ended: ", command.Err)
		}
		if !bytes.Contains(log.Text(), []byte("Ctrl-C ends it")) {
			return errors.New("the command has not printed how it ends")
		}
		return nil
	})

	script := string(printed.Text())
	t.Log(script)
	shell := func(lines string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", lines)
		cmd.Dir = dir
		cmd.Env = []string{"HOME=" + dir, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		return string(out)
	}
	out := shell(script)
	t.Log(out)
	for _, want := range []string{"STATUS: deployed", "Phase:          Succeeded"} {
		if !strings.Contains(out, want) {
			t.Errorf("the script prints no %q", want)
		}
	}
	var exports []string
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "export ") {
			exports = append(exports, line)
		}
	}
	use := strings.Join(exports, "")
	for _, name := range []string{"early", "late"} {
		shell(use + fmt.Sprintf(`for node in node node-2; do
			kubectl run %[1]s-$node --image=localhost/%[1]s:1 --image-pull-policy=Never --restart=Never \
				--overrides="{\"apiVersion\": \"v1\", \"spec\": {\"nodeName\": \"$node\"}}" -- version
			kubectl wait pod/%[1]s-$node --for=jsonpath={.status.phase}=Succeeded --timeout=2m
			[[ $(kubectl logs %[1]s-$node) == $(spillway version) ]]
		done`, name))
	}

	config := strings.TrimSpace(shell(use + `echo "$KUBECONFIG"`))
	pid := command.Pid()
	if err := command.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-command.Done
	if command.Err != nil {
		t.Errorf("after SIGINT it ends with %v", command.Err)
	}
	for _, left := range leftBy(t, pid, filepath.Dir(config)) {
		t.Error("the command leaves ", left)
	}
}

// leftBy is what a command with this process id and folder has left: the folder, cgroups, mounts
// and processes.
func leftBy(t *testing.T, pid int, dir string) (left []string) {
	t.Helper()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		left = append(left, fmt.Sprintf("its folder %s: %v", dir, err))
	}
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		cgroups, err := filepath.Glob(pattern + "spillway-node-" + strconv.Itoa(pid) + "-*")
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, cgroups...)
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "/proc/self/mountinfo") {
		text, err := os.ReadFile(file)
		if err == nil && bytes.Contains(text, []byte(dir)) { // else the process has just ended
			left = append(left, file+": "+string(text))
		}
	}
	return left
}
