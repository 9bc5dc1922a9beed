package memory

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sys/unix"
)

// The variables tell a child of this test what it is to be. The children are this very program.
const (
	concealing = "SPILLWAY_TEST_CONCEAL" // yes or no
	peeping    = "SPILLWAY_TEST_PEEP"    // the file to read
)

// stranger is the uid and the gid of an unprivileged user.
const stranger = 65534

// Other processes of the same user cannot read the memory of a concealed process, which can still
// read all of its own files that its metrics need.
func TestConceal(t *testing.T) {
	switch {
	case os.Getenv(concealing) != "":
		beConcealed(t)
		return
	case os.Getenv(peeping) != "":
		_, err := os.ReadFile(os.Getenv(peeping))
		fmt.Printf("peeped: %v\n", err)
		return
	case os.Getuid() != 0:
		t.Skip("needs root, to be an ordinary user")
	}
	for _, conceal := range []string{"yes", "no"} {
		child := asStranger(t, concealing+"="+conceal)
		in, err := child.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		ready := false
		for !ready && lines.Scan() {
			t.Log(lines.Text())
			ready = lines.Text() == "ready"
		}
		if !ready {
			t.Fatal("the child failed")
		}
		peep := asStranger(t, fmt.Sprintf("%s=/proc/%d/environ", peeping, child.Process.Pid))
		seen, err := peep.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, seen)
		}
		if denied := strings.Contains(string(seen), "permission denied"); denied != (conceal == "yes") {
			t.Errorf("concealed: %s; another process: %s", conceal, seen)
		}
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		if err := child.Wait(); err != nil {
			t.Errorf("concealed: %s: %v", conceal, err)
		}
	}
}

// asStranger is this test as an ordinary user.
func asStranger(t *testing.T, variable string) *exec.Cmd {
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestConceal$", "-test.v")
	child.Env = []string{variable}
	child.Dir = "/"
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	return child
}

// beConcealed shows that the metrics of a concealed process are whole, and waits for the end of its
// input.
func beConcealed(t *testing.T) {
	before := processMetrics(t)
	if os.Getenv(concealing) == "yes" {
		if err := Conceal(); err != nil {
			t.Fatal(err)
		}
		dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		var core unix.Rlimit
		if err != nil || dumpable != 0 || unix.Getrlimit(unix.RLIMIT_CORE, &core) != nil || core.Cur != 0 || core.Max != 0 {
			t.Fatalf("dumpable %d, %v; core %+v", dumpable, err, core)
		}
		info, err := os.Stat("/proc/self/environ")
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Fatalf("/proc/self/environ is not root's: %v", err)
		}
	}
	if after := processMetrics(t); after != before || !strings.Contains(after, "process_open_fds") ||
		!strings.Contains(after, "process_resident_memory_bytes") {
		t.Fatalf("metrics are now %s, were %s", after, before)
	}
	if _, err := os.ReadFile(filepath.Join("/proc/self", "status")); err != nil {
		t.Fatal(err)
	}
	fmt.Println("\nready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// processMetrics are the names of what is known of this process.
func processMetrics(t *testing.T) string {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), "process_") {
			names = append(names, family.GetName())
		}
	}
	return strings.Join(names, " ")
}
