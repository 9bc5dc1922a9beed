package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// injectedFlags are those of a sidecar that injection decides.
var injectedFlags = []string{"sidecar-dir", "sidecar-key-dir", "listen", "listen-tls", "metrics-listen", "resources",
	"kubeconfig"}

// CheckSidecarFlags finds what would keep a sidecar from starting, before it is in a pod. The flags
// may come from any annotation: no file that they name is opened.
func CheckSidecarFlags(args []string) error {
	o := New()
	flags := o.flags
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return errors.New("--help is not for sidecars")
	} else if err != nil {
		return ExplainFlagError("spillway", flags, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: give flags, as --name=value", flags.Arg(0))
	}
	var err error
	flags.Visit(func(f *pflag.Flag) {
		// in a pod the name of a file would mean another file than here
		if kind, _ := pflag.UnquoteUsage(f); kind == "file" {
			err = fmt.Errorf("--%s is not for sidecars: they have no files but those that injection gives them", f.Name)
		}
		if f.Name != "resources" && slices.Contains(injectedFlags, f.Name) {
			err = fmt.Errorf("--%s is not for sidecars: injection decides it", f.Name)
		}
	})
	if strings.Count(strings.Join(args, "\n"), "--resources") > 1 {
		err = errors.New("--resources has a setting of its own")
	}
	if err != nil {
		return err
	}
	o.SidecarDir, o.Listen, o.ListenTLS = "/", "", "127.0.0.1:6443"
	return o.Validate([]string{"KUBERNETES_SERVICE_HOST=inside"})
}
