package config

import (
	"crypto/tls"
	"testing"

	"go.uber.org/goleak"

	"spillway/internal/listen"
	"spillway/internal/status"
	"spillway/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var writeFile = testutil.WriteFile

// result is what flags and environment led to.
type result struct {
	code    int
	stderr  string
	options *Settings // nil if they are refused
}

// start reads args and environ in a pod, as the program does.
func start(environ []string, args ...string) result {
	o := New()
	refused := func(err error) result { return result{1, "spillway: " + status.OneLine(err.Error()) + "\n", nil} }
	flags := o.flagSet()
	if err := flags.Parse(args); err != nil {
		return refused(ExplainFlagError("spillway", flags, err))
	}
	environ = append([]string{"KUBERNETES_SERVICE_HOST=10.0.0.1", "PATH=/bin"}, environ...)
	if err := o.Complete(flags, environ); err != nil {
		return refused(err)
	}
	if err := o.Validate(environ); err != nil {
		return refused(err)
	}
	return result{0, "", o}
}

func expectLine(t *testing.T, got result, want string) {
	t.Helper()
	if got.code != 1 || got.stderr != "spillway: "+want+"\n" {
		t.Errorf("exit code %d, stderr\n%swant 1 and\nspillway: %s\n", got.code, got.stderr, want)
	}
}

// selfSigned is a new certificate of this machine.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	config, _, err := listen.TLS{}.Config()
	if err != nil {
		t.Fatal(err)
	}
	return config.Certificates[0]
}
