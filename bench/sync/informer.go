package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/clientcmd"
)

// informerCommand is the argument that makes this program an informer.
const informerCommand = "inform"

// inform runs a dynamic informer with client-go's own settings. It says when it is synced, and,
// after any input, that it has given back all the memory that it does not need.
func inform(kubeconfig, resource string, in io.Reader, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	informers := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := informers.ForResource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Informer()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	informers.Start(ctx.Done())
	for _, synced := range informers.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return errors.New("not synced")
		}
	}
	fmt.Fprintln(out, "synced")
	orders := bufio.NewScanner(in)
	for orders.Scan() {
		debug.FreeOSMemory()
		fmt.Fprintln(out, "collected", len(informer.GetStore().ListKeys()))
	}
	return orders.Err()
}
