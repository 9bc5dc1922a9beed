// Command argocd runs the cluster cache of Argo CD's application controller (gitops-engine), of
// ConfigMaps alone. It knows no label selectors.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"spillway/test/e2e/clients/protocol"
)

// configMaps excludes all other resources.
type configMaps struct{}

// IsExcludedResource implements the filter of cache.Settings.
func (configMaps) IsExcludedResource(group, kind, _ string) bool {
	return group != "" || kind != "ConfigMap"
}

func main() {
	args := protocol.Parse()
	config := &rest.Config{Host: args.Server, BearerTokenFile: args.TokenFile,
		TLSClientConfig: rest.TLSClientConfig{CAFile: args.CAFile}}
	clusterCache := cache.NewClusterCache(config,
		cache.SetNamespaces([]string{args.Namespace}),
		cache.SetSettings(cache.Settings{ResourcesFilter: configMaps{}}),
		cache.SetPopulateResourceInfoHandler(func(o *unstructured.Unstructured, _ bool) (any, bool) {
			return o.GetAnnotations()["value"], false
		}))
	clusterCache.OnResourceUpdated(func(now, old *cache.Resource, _ map[kube.ResourceKey]*cache.Resource) {
		switch {
		case now == nil:
			protocol.Delete(old.Ref.Name)
		case old == nil:
			protocol.Set("add", now.Ref.Name, now.Info.(string))
		default:
			protocol.Set("update", now.Ref.Name, now.Info.(string))
		}
	})
	for err := clusterCache.EnsureSynced(); err != nil; err = clusterCache.EnsureSynced() {
		fmt.Fprintln(os.Stderr, err) // as the application controller, which tries again
		time.Sleep(time.Second)
	}
	protocol.Synced()
	protocol.Answer(func() map[string]string {
		state := map[string]string{}
		for key, resource := range clusterCache.FindResources(args.Namespace) {
			state[key.Name] = resource.Info.(string)
		}
		return state
	})
}
