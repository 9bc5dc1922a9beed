package simulation

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"spillway/test/framework/process"
)

// patience bounds whatever is certain to come.
const patience = time.Minute

// startProxy builds the proxy and runs it in front of an API server that does not authenticate.
func startProxy(t *testing.T, upstream, resources string) *process.Proxy {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],`+
			`"contexts":[{"name":"c","context":{"cluster":"c","user":""}}]}`, upstream)
	if err := os.WriteFile(config, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return process.StartProxy(t, process.BuildProxy(t), "--kubeconfig="+config, "--resources="+resources,
		"--listen-identity=self", "--drain-period=0s")
}
