package main

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

func (o *options) sidecarFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.sidecarDir, "sidecar-dir", o.sidecarDir,
		"Be the API server of the other containers of this pod: write to this `folder` what they have to find in "+sidecar.AccountDir+" - the pod's token, again "+
			"whenever it is rotated, its namespace, and the certificate to trust on --listen-tls, which must be on loopback and is for the pod's own "+
			"service account alone. spillway inject sets this.")
	fs.StringVar(&o.sidecarKeyDir, "sidecar-key-dir", o.sidecarKeyDir,
		"Keep the key for that certificate in this `folder`, so that they still trust it when spillway was started again. It had better be in memory, "+
			"and mounted by no other container. When empty, the key is lost with the process.")
}

// validateSidecar refuses what would have a sidecar serve others than its pod, or be trusted by nobody.
func (o *options) validateSidecar() error {
	if o.sidecarDir == "" {
		if o.sidecarKeyDir != "" {
			return o.refuse("sidecar-key-dir", o.sidecarKeyDir, "has a meaning only with --sidecar-dir")
		}
		return nil
	}
	if o.kubeconfig != "" {
		return o.refuse("sidecar-dir", o.sidecarDir, "copies the service account of the pod, which spillway has to use itself: leave --kubeconfig out")
	}
	if address, err := listen.SplitAddress(o.listenTLS); err != nil || !listen.IsLoopback(address.Host) {
		return o.refuse("sidecar-dir", o.sidecarDir, "needs --listen-tls on loopback, such as --listen-tls=127.0.0.1:6443")
	}
	for _, f := range []struct {
		flag string
		set  bool
	}{
		{"tls-cert-file", o.tlsCertFile != ""}, {"client-ca-file", o.clientCAFile != ""}, {"requestheader-client-ca-file", o.frontProxy.caFile != ""},
		{"api-audiences", len(o.apiAudiences) > 0}, {"watch-rights", o.watchRights}, {"authorization-local-rbac", o.localRBAC},
		{"authentication-local-jwks", o.localTokens != localTokensNone}, {"insecure-allow-all", o.insecureAllowAll},
	} {
		if f.set {
			return o.refuse("sidecar-dir", o.sidecarDir, "is for tokens of the pod's own service account, which leaves no meaning to --"+f.flag)
		}
	}
	if o.sidecarKeyDir != "" && strings.TrimRight(o.sidecarKeyDir, "/") == strings.TrimRight(o.sidecarDir, "/") {
		return o.refuse("sidecar-key-dir", o.sidecarKeyDir, "must not be --sidecar-dir, which other containers read")
	}
	return nil
}

// checkSidecarFlags finds what would keep a sidecar from starting, before it is in a pod. They may come from
// any annotation: no file that they name is opened.
func checkSidecarFlags(args []string) error {
	o := newOptions()
	flags := o.flagSet()
	if err := flags.Parse(args); err != nil {
		return explainFlagError("spillway", flags, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: give flags, as --name=value", flags.Arg(0))
	}
	var err error
	flags.Visit(func(f *pflag.Flag) {
		if kind, _ := pflag.UnquoteUsage(f); kind == "file" { // and here, where pods are let in, it would be another one than there
			err = fmt.Errorf("--%s is not for sidecars: they have no files but those that injection gives them", f.Name)
		}
		if f.Name != "resources" && (slices.Contains(inject.OwnFlags, f.Name) || slices.Contains([]string{"config", "help", "version"}, f.Name)) {
			err = fmt.Errorf("--%s is not for sidecars: injection decides it", f.Name)
		}
	})
	if strings.Count(strings.Join(args, "\n"), "--resources") > 1 {
		err = errors.New("--resources has a setting of its own")
	}
	if err != nil {
		return err
	}
	o.sidecarDir, o.listen, o.listenTLS = "/", "", "127.0.0.1:6443"
	o.flags = flags
	return o.validate([]string{"KUBERNETES_SERVICE_HOST=inside"})
}
