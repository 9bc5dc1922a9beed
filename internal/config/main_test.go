package config

import (
	"testing"

	"go.uber.org/goleak"

	"spillway/internal/status"
	"spillway/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var writeFile = testutil.WriteFile

// fileStart is how every configuration file begins: with two lines.
const fileStart = "apiVersion: config.spillway.example.com/v1alpha1\nkind: SpillwayConfiguration\n"

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
	if err := o.flags.Parse(args); err != nil {
		return refused(ExplainFlagError("spillway", o.flags, err))
	}
	environ = append([]string{"KUBERNETES_SERVICE_HOST=10.0.0.1", "PATH=/bin"}, environ...)
	if err := o.Complete(environ); err != nil {
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
