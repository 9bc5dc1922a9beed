package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// injectedFlags are flags of a sidecar that injection sets.
var injectedFlags = []string{"sidecar-dir", "sidecar-key-dir", "listen", "listen-tls", "metrics-listen", "resources",
	"kubeconfig"}

// CheckSidecarFlags returns why a sidecar with these flags would not start. The flags may come from
// any user's annotation, so no file that they name is opened.
func CheckSidecarFlags(args []string) error {
	o := New()
	flags := o.flags
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return errors.New("--help cannot be set for sidecars")
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
			err = fmt.Errorf("--%s cannot be set for sidecars: they have only the files that injection gives them", f.Name)
		}
		if f.Name != "resources" && slices.Contains(injectedFlags, f.Name) {
			err = fmt.Errorf("--%s cannot be set for sidecars: injection sets it", f.Name)
		}
	})
	if strings.Count(strings.Join(args, "\n"), "--resources") > 1 {
		err = errors.New("--resources cannot be set here: it has a flag and an annotation of its own")
	}
	if err != nil {
		return err
	}
	if !o.isSet("resources") { // injection sets it
		err = flags.Set("resources", AllResources)
	}
	if err != nil {
		return err
	}
	o.SidecarDir, o.Listen, o.ListenTLS = "/", "", "127.0.0.1:6443"
	return o.Validate([]string{"KUBERNETES_SERVICE_HOST=inside"})
}
