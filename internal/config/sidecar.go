package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"spillway/internal/inject"
	"spillway/internal/listen"
	"spillway/internal/sidecar"
)

func (o *Settings) sidecarFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.SidecarDir, "sidecar-dir", o.SidecarDir,
		"Be the API server of the other containers of this pod: write to this `folder` what they have to find in "+
			sidecar.AccountDir+" - the pod's token, again "+
			"whenever it is rotated, its namespace, and the certificate to trust on --listen-tls, which must be on "+
			"loopback and is for the pod's own service account alone. spillway inject sets this.")
	fs.StringVar(&o.SidecarKeyDir, "sidecar-key-dir", o.SidecarKeyDir,
		"Keep the key for that certificate in this `folder`, so that they still trust it when spillway was started "+
			"again. It had better be in memory, and mounted by no other container. When empty, the key is lost with the "+
			"process.")
}

// validateSidecar refuses what would have a sidecar serve others than its pod, or present what no
// client trusts.
func (o *Settings) validateSidecar() error {
	if o.SidecarDir == "" {
		if o.SidecarKeyDir != "" {
			return o.Refuse("sidecar-key-dir", o.SidecarKeyDir, "has a meaning only with --sidecar-dir")
		}
		return nil
	}
	if o.Kubeconfig != "" {
		return o.Refuse("sidecar-dir", o.SidecarDir,
			"copies the service account of the pod, which spillway has to use itself: leave --kubeconfig out")
	}
	if address, err := listen.SplitAddress(o.ListenTLS); err != nil || !listen.IsLoopback(address.Host) {
		return o.Refuse("sidecar-dir", o.SidecarDir, "needs --listen-tls on loopback, such as --listen-tls=127.0.0.1:6443")
	}
	for _, f := range []struct {
		flag string
		set  bool
	}{
		{"tls-cert-file", o.TLSCertFile != ""}, {"client-ca-file", o.ClientCAFile != ""},
		{"requestheader-client-ca-file", o.FrontProxy.CAFile != ""},
		{"api-audiences", len(o.APIAudiences) > 0}, {"watch-rbac", o.WatchRBAC},
		{"authorization-local-rbac", o.LocalRBAC},
		{"authentication-local-jwks", o.LocalTokens != LocalTokensNone}, {"insecure-allow-all", o.InsecureAllowAll},
	} {
		if f.set {
			return o.Refuse("sidecar-dir", o.SidecarDir,
				"is for tokens of the pod's own service account, which leaves no meaning to --"+f.flag)
		}
	}
	if o.SidecarKeyDir != "" && strings.TrimRight(o.SidecarKeyDir, "/") == strings.TrimRight(o.SidecarDir, "/") {
		return o.Refuse("sidecar-key-dir", o.SidecarKeyDir, "must not be --sidecar-dir, which other containers read")
	}
	return nil
}

// CheckSidecarFlags finds what would keep a sidecar from starting, before it is in a pod. The flags
// may come from any annotation: no file that they name is opened.
func CheckSidecarFlags(args []string) error {
	o := New()
	flags := o.flagSet()
	if err := flags.Parse(args); err != nil {
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
		if f.Name != "resources" &&
			(slices.Contains(inject.OwnFlags, f.Name) || slices.Contains([]string{"config", "help", "version"}, f.Name)) {
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
	o.flags = flags
	return o.Validate([]string{"KUBERNETES_SERVICE_HOST=inside"})
}
