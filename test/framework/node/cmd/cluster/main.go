// Command cluster runs a real cluster of one or more nodes until SIGINT, SIGTERM or the end of its
// parent. The nodes have an image of a built Spillway. The command prints a script for a shell: the
// variables that kubectl and helm need, the installation of that image, and the import of another.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"spillway/test/framework/controlplane"
	"spillway/test/framework/node"
)

// The image of Spillway, as the chart's values name it.
const (
	registry = "localhost"
	tag      = "dev"
	user     = "65532:65532" // that of the Dockerfile
)

func main() {
	node.Main()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	nodes := flag.Int("nodes", 1, "how many there are")
	spillway := flag.String("spillway", "bin/spillway", "the program that the nodes have an image of, linked statically")
	flag.Parse()
	err := run(ctx, *nodes, *spillway, flag.Args())
	if err != nil && ctx.Err() == nil { // a signal during the start is no error
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, nodes int, spillway string, archives []string) (err error) {
	spillway, err = filepath.Abs(spillway)
	if err != nil {
		return err
	}
	image := node.Image{Name: registry + "/spillway:" + tag, Program: spillway, As: "spillway", User: user}
	n, err := node.Start(ctx, node.Options{Workers: max(0, nodes-1), Images: []node.Image{image}, Archives: archives,
		Log: os.Stderr})
	if err != nil {
		return err
	}
	script, err := scriptFor(n, filepath.Dir(spillway))
	if err != nil {
		return errors.Join(err, n.Stop())
	}
	fmt.Print(script)
	fmt.Fprintln(os.Stderr, "cluster: Ctrl-C ends it; its logs are in", n.Dir())
	<-ctx.Done()
	fmt.Fprintln(os.Stderr, "cluster: ending")
	if err := n.Stop(); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "cluster: ended, and nothing of it is left")
	return nil
}

// scriptFor is what a shell runs to use the cluster. Its last lines read image.tar in the shell's
// folder.
func scriptFor(n *node.Node, programs string) (string, error) {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return "", err
	}
	kubectl, err := controlplane.BinDir()
	if err != nil {
		return "", err
	}
	path := strings.Join([]string{kubectl, filepath.Join(root, "bin", "tools"), programs}, ":")
	imports := ""
	for _, name := range n.Nodes() {
		cmd, err := n.ImportCommand(name)
		if err != nil {
			return "", err
		}
		imports += quoteCommand(cmd) + " <image.tar\n"
	}
	return fmt.Sprintf(`# In another shell, kubectl, helm and spillway use this cluster:
export PATH=%s:"$PATH"
export KUBECONFIG=%s
# Install the Spillway of this checkout, and test it:
helm install spillway %s --namespace spillway-system --create-namespace --wait \
  --set image.registry=%s,image.tag=%s,image.pullPolicy=Never
helm test spillway --namespace spillway-system
# Import another image into the nodes, from an archive (OCI or docker):
%s`, quote(path), quote(n.Kubeconfig()), quote(filepath.Join(root, "charts", "spillway")), registry, tag, imports), nil
}

func quoteCommand(cmd *exec.Cmd) string {
	words := make([]string, len(cmd.Args))
	for i, word := range cmd.Args {
		words[i] = quote(word)
	}
	return strings.Join(words, " ")
}

var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// quote is a word of a shell.
func quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
