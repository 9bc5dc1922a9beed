// Command prometheus runs the service discovery of Prometheus for the role service.
package main

import (
	"context"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/discovery/targetgroup"

	"spillway/test/e2e/clients/protocol"
)

func main() {
	args := protocol.Parse()
	server, err := url.Parse(args.Server)
	protocol.Must(err)
	settings := &kubernetes.SDConfig{
		APIServer: config.URL{URL: server},
		Role:      kubernetes.RoleService,
		HTTPClientConfig: config.HTTPClientConfig{
			Authorization: &config.Authorization{Type: "Bearer", CredentialsFile: args.TokenFile},
			TLSConfig:     config.TLSConfig{CAFile: args.CAFile},
			EnableHTTP2:   true,
		},
		NamespaceDiscovery: kubernetes.NamespaceDiscovery{Names: []string{args.Namespace}},
		Selectors:          []kubernetes.SelectorConfig{{Role: kubernetes.RoleService, Label: protocol.Selector}},
	}
	registry := prometheus.NewRegistry()
	metrics := settings.NewDiscovererMetrics(registry, discovery.NewRefreshMetrics(registry))
	protocol.Must(metrics.Register())
	discoverer, err := settings.NewDiscoverer(discovery.DiscovererOptions{Metrics: metrics})
	protocol.Must(err)
	groups := make(chan []*targetgroup.Group)
	go discoverer.Run(context.Background(), groups)
	go func() {
		for all := range groups {
			for _, group := range all {
				note(group)
			}
		}
	}()
	protocol.Answer(protocol.Held)
}

// note takes the present targets of one Service; a group without labels is one that is gone.
func note(group *targetgroup.Group) {
	name := group.Source[strings.LastIndexByte(group.Source, '/')+1:]
	value, ok := group.Labels[model.MetaLabelPrefix+"kubernetes_service_annotation_value"]
	if !ok {
		protocol.Delete(name)
		return
	}
	protocol.Set("update", name, string(value))
}
