// Command clientgo runs informers of ConfigMaps with the settings of client-go, whatever version of
// it the program is built with: go.mod names the newest, and go-1.30.mod and the like older ones,
// for go build -modfile.
//
//	clientgo SERVER CA-FILE TOKEN-FILE NAMESPACE [INFORMERS]
//
// It writes a line of JSON when every store is complete, for each call of the first informer's
// handlers, and, in answer to each line on standard input, its store. It ends with standard input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// line is what the program says.
type line struct {
	What    string            `json:"what"` // synced, add, update, delete or state
	Name    string            `json:"name,omitempty"`
	Value   string            `json:"value,omitempty"`   // of add, update and delete: the annotation value
	Objects map[string]string `json:"objects,omitempty"` // of state: the annotation value, by name
	Unlike  int               `json:"unlike,omitempty"`  // of state: informers that hold something else than the first
}

// output writes lines for several goroutines.
type output struct {
	mu      sync.Mutex
	encoder *json.Encoder
}

func (o *output) say(l line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.encoder.Encode(l); err != nil {
		os.Exit(1) // the reader is gone
	}
}

func (o *output) handler() cache.ResourceEventHandlerFuncs {
	tell := func(what string, object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		configMap := object.(*corev1.ConfigMap)
		o.say(line{What: what, Name: configMap.Name, Value: configMap.Annotations["value"]})
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { tell("add", object) },
		UpdateFunc: func(_, object any) { tell("update", object) },
		DeleteFunc: func(object any) { tell("delete", object) },
	}
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 4 || len(args) > 5 {
		return fmt.Errorf("%d arguments, want SERVER CA-FILE TOKEN-FILE NAMESPACE [INFORMERS]", len(args))
	}
	count := 1
	if len(args) == 5 {
		var err error
		if count, err = strconv.Atoi(args[4]); err != nil || count < 1 {
			return fmt.Errorf("%q is no number of informers", args[4])
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &output{encoder: json.NewEncoder(os.Stdout)}
	var all []cache.SharedIndexInformer
	for range count {
		informer, err := newInformer(args)
		if err != nil {
			return err
		}
		all = append(all, informer)
	}
	if _, err := all[0].AddEventHandler(out.handler()); err != nil {
		return fmt.Errorf("cannot add a handler: %w", err)
	}
	for _, informer := range all {
		go informer.Run(ctx.Done())
	}
	go func() {
		for _, informer := range all {
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				return
			}
		}
		out.say(line{What: "synced"})
	}()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		out.say(state(all))
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("cannot read standard input: %w", err)
	}
	return nil
}

// newInformer makes an informer of the objects labelled seen. It shares its connection with no
// other informer, as if it were the only one of its process.
func newInformer(args []string) (cache.SharedIndexInformer, error) {
	config := &rest.Config{Host: args[0], BearerTokenFile: args[2], TLSClientConfig: rest.TLSClientConfig{CAFile: args[1]}}
	config.Dial = (&net.Dialer{}).DialContext // a dialer of its own keeps client-go from sharing a connection
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(args[3]),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "seen=true" }))
	return factory.Core().V1().ConfigMaps().Informer(), nil
}

// state is what the first informer holds, and how many others hold something else.
func state(all []cache.SharedIndexInformer) line {
	l := line{What: "state", Objects: map[string]string{}}
	first := map[string]string{}
	for i, informer := range all {
		versions := map[string]string{}
		for _, object := range informer.GetStore().List() {
			configMap := object.(*corev1.ConfigMap)
			versions[configMap.Name] = configMap.ResourceVersion
			if i == 0 {
				l.Objects[configMap.Name] = configMap.Annotations["value"]
			}
		}
		if i == 0 {
			first = versions
		} else if !maps.Equal(first, versions) {
			l.Unlike++
		}
	}
	return l
}
