package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"spillway/internal/clientconfig"
	"spillway/internal/config"
)

// newKubeconfig returns `spillway kubeconfig`.
func newKubeconfig() *cobra.Command {
	o := clientconfig.Options{Server: "http://127.0.0.1:8001"}
	var output string
	cmd := &cobra.Command{
		Use:   "kubeconfig [flags]",
		Short: "Write a kubeconfig that leads to a spillway",
		Long: `spillway kubeconfig writes a kubeconfig for clients of a spillway: kubectl, and whatever else reads
one.

With --kubeconfig, its user is that of a context there, with that user's credentials and rights.
That takes https://, since clients send no credentials over plain HTTP. Without, it has no user,
which is right for a spillway with --listen-identity=self.`,
		Example: `  # For the one on this machine, with --listen-identity=self:
  spillway kubeconfig --output spillway.kubeconfig
  kubectl --kubeconfig spillway.kubeconfig get pods --watch

  # For the one of a cluster, with one's own credentials:
  spillway kubeconfig --server https://spillway.spillway-system.svc --certificate-authority spillway-ca.crt \
    --kubeconfig ~/.kube/config --output spillway.kubeconfig`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, warning, err := clientconfig.Make(o)
			if err != nil {
				return err
			}
			if warning != "" {
				cmd.PrintErrln("warning:", warning)
			}
			if output == "-" {
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			return writeNew(output, text)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Server, "server", o.Server, "The `URL` at which clients reach spillway.")
	f.StringVar(&o.CAFile, "certificate-authority", "",
		"Verify its certificate by those in this PEM `file`. When empty, by the system's.")
	f.StringVar(&o.From, "kubeconfig", "",
		"Take the user and the namespace of this kubeconfig `file`. When empty, there is no user.")
	f.StringVar(&o.TokenFile, "token-file", "",
		"Let the user be that of the token in this `file` where the kubeconfig is used, "+
			"read again whenever it changes, such as a pod's.")
	f.StringVar(&o.Context, "context", "", "Use the context of this `name` in --kubeconfig. When empty, the current one.")
	f.StringVar(&o.Namespace, "namespace", "", "The default `namespace` of its users.")
	f.StringVar(&output, "output", "-", "Write to this `file`, which must not be there yet; - is standard output.")
	return prepare(cmd)
}

// writeNew writes a file with credentials in it.
func writeNew(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // #nosec G304 -- the user names it
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("--output=%s: is there already: remove it, or name another", name)
	}
	if err == nil {
		_, err = file.Write(text)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("--output=%s: cannot be written: %s", name, config.Cause(err))
	}
	return nil
}
