// Command controllerruntime runs the cache of a controller-runtime manager.
package main

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"spillway/test/e2e/clients/protocol"
)

func main() {
	args := protocol.Parse()
	config := &rest.Config{Host: args.Server, BearerTokenFile: args.TokenFile,
		TLSClientConfig: rest.TLSClientConfig{CAFile: args.CAFile}}
	selector, err := labels.Parse(protocol.Selector)
	protocol.Must(err)
	ctx := context.Background()
	objects, err := cache.New(config, cache.Options{
		DefaultNamespaces: map[string]cache.Config{args.Namespace: {}}, DefaultLabelSelector: selector,
	})
	protocol.Must(err)
	informer, err := objects.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	protocol.Must(err)
	set := func(what string, o any) {
		configMap := o.(*corev1.ConfigMap)
		protocol.Set(what, configMap.Name, configMap.Annotations["value"])
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { set("add", o) },
		UpdateFunc: func(_, o any) { set("update", o) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			protocol.Delete(o.(*corev1.ConfigMap).Name)
		},
	})
	protocol.Must(err)
	go func() { protocol.Must(errors.Join(objects.Start(ctx), errors.New("the cache ended"))) }()
	if !objects.WaitForCacheSync(ctx) {
		protocol.Must(errors.New("the cache does not sync"))
	}
	protocol.Synced()
	protocol.Answer(func() map[string]string {
		var list corev1.ConfigMapList
		protocol.Must(objects.List(ctx, &list, client.InNamespace(args.Namespace)))
		state := map[string]string{}
		for _, o := range list.Items {
			state[o.Name] = o.Annotations["value"]
		}
		return state
	})
}
