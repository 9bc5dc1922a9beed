// Command externaldns runs external-dns' source of Services of the type ExternalName. It filters by
// label itself.
package main

import (
	"context"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/external-dns/source"
	"sigs.k8s.io/external-dns/source/template"

	"spillway/test/e2e/clients/protocol"
)

// names makes a DNS name of a Service's name and its annotation, which has characters that DNS does
// not allow.
const names = `{{.Name}}.{{printf "%x" (index .Annotations "value")}}`

func main() {
	args := protocol.Parse()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: args.Server, BearerTokenFile: args.TokenFile,
		TLSClientConfig: rest.TLSClientConfig{CAFile: args.CAFile}})
	protocol.Must(err)
	selector, err := labels.Parse(protocol.Selector)
	protocol.Must(err)
	engine, err := template.NewEngine(names, "", "", false)
	protocol.Must(err)
	ctx := context.Background()
	services, err := source.NewServiceSource(ctx, client, &source.Config{
		Namespace: args.Namespace, LabelFilter: selector, TemplateEngine: engine, ServiceTypeFilter: []string{"ExternalName"},
	})
	protocol.Must(err)
	protocol.Synced()
	protocol.Answer(func() map[string]string {
		endpoints, err := services.Endpoints(ctx)
		protocol.Must(err)
		state := map[string]string{}
		for _, e := range endpoints {
			name, encoded, _ := strings.Cut(e.DNSName, ".")
			value, err := hex.DecodeString(encoded)
			protocol.Must(err)
			state[name] = string(value)
		}
		return state
	})
}
