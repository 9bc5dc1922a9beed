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
		Long: `spillway kubeconfig writes a kubeconfig for clients of a spillway, such as kubectl. With --kubeconfig,
the user is that of a context in the given file, with the credentials and rights of that user.
Without it, the user is that of --token-file, or there is none, which is right for a spillway with
--listen-identity=self.

  spillway kubeconfig --output spillway.kubeconfig
  kubectl --kubeconfig spillway.kubeconfig get pods --watch --output name

It prints the kubeconfig to standard output, or nothing if --output names a file. On stderr it warns
if the user has a client certificate, because spillway must be set up to verify the certificate.

It fails with code 1 if a file cannot be read or written, if the file of --output exists, or if flags
contradict each other. --kubeconfig and --token-file require https:// in --server: clients send no
credentials over plain HTTP. If --output cannot be written to its end, what was written is left there.`,
		Example: `  # For a spillway in a cluster, with your own credentials:
  spillway kubeconfig --server https://spillway.spillway-system.svc --ca-file spillway-ca.crt \
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
	f.StringVar(&o.CAFile, "ca-file", "",
		"Verify spillway's certificate by the authorities in this PEM `file`. When empty, by the system's authorities.")
	f.StringVar(&o.From, "kubeconfig", "",
		"Take the user and the namespace of this kubeconfig `file`. When empty, the user is that of --token-file, or "+
			"there is none.")
	f.StringVar(&o.TokenFile, "token-file", "",
		"Clients authenticate by the token in this `file`, a full path. They read it on the machine where they run, "+
			"and again whenever it changes. The token of a pod is such a file.")
	f.StringVar(&o.Context, "context", "",
		"Use the context of this `name` in --kubeconfig. When empty, use the current context.")
	f.StringVar(&o.Namespace, "namespace", "",
		"The default `namespace` of the kubeconfig. When empty, the namespace of the context in --kubeconfig.")
	f.StringVar(&output, "output", "-", "Write to this `file`, which must not exist. - is standard output.")
	return newSubcommand(cmd)
}

// writeNew writes a new file that is readable by its owner only: it may hold credentials. If that
// fails after the file was made, what was written stays in it.
func writeNew(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // #nosec G304 -- the user names it
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("--output=%s: exists already: remove it, or name another file", name)
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
