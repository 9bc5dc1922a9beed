package process

import (
	"os"
	"path/filepath"
	"testing"
)

// Localhost are the addresses that localhost has for programs that were built with OwnHosts and
// have what Hosts returns in their environment.
var Localhost = []string{"127.0.0.1", "127.0.0.2"}

// hostsFile is the environment variable that names such a program's /etc/hosts.
const hostsFile = "TEST_HOSTS"

// Hosts are the variables that such a program must have in its environment. One sees to it that Go
// looks names up itself.
func Hosts(t *testing.T) []string {
	t.Helper()
	name, text := filepath.Join(t.TempDir(), "hosts"), ""
	for _, address := range Localhost {
		text += address + " localhost\n"
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{hostsFile + "=" + name, "GODEBUG=netdns=go"}
}

// OwnHosts is Go's own library, changed so that a program has an /etc/hosts of its own.
func OwnHosts(t *testing.T) Fault {
	t.Helper()
	return Fault{File: library(t, "net/hook_unix.go"), Old: "hostsFilePath = \"/etc/hosts\"\n",
		New: `hostsFilePath = func() string {
		if own, ok := syscall.Getenv("` + hostsFile + `"); ok {
			return own
		}
		return "/etc/hosts"
	}()
`}
}
