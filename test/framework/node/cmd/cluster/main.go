// Command cluster runs a real cluster of one node until SIGINT, SIGTERM or the end of its parent,
// and prints the line by which kubectl and helm reach it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"spillway/test/framework/node"
)

func main() {
	node.Main()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && ctx.Err() == nil { // a signal during the start is no error
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, archives []string) (err error) {
	n, err := node.Start(ctx, node.Options{Archives: archives, Log: os.Stderr})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "cluster: Ctrl-C ends it; its logs are in", n.Dir())
	fmt.Println("export KUBECONFIG=" + n.Kubeconfig())
	<-ctx.Done()
	return n.Stop()
}
