// Command cluster runs a real cluster of one or more nodes until SIGINT, SIGTERM or the end of its
// parent, and prints the line by which kubectl and helm reach it.
package main

import (
	"context"
	"flag"
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
	nodes := flag.Int("nodes", 1, "how many there are")
	flag.Parse()
	if err := run(ctx, *nodes, flag.Args()); err != nil && ctx.Err() == nil { // a signal during the start is no error
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, nodes int, archives []string) (err error) {
	n, err := node.Start(ctx, node.Options{Workers: max(0, nodes-1), Archives: archives, Log: os.Stderr})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "cluster: Ctrl-C ends it; its logs are in", n.Dir())
	fmt.Println("export KUBECONFIG=" + n.Kubeconfig())
	<-ctx.Done()
	return n.Stop()
}
