// Package crowd is many clients with a different user each: service accounts with a token each,
// spread over namespaces, which RBAC allows to watch four things each. Invariant: what a member
// watches is permitted, and the members that receive a write are known beforehand.
package crowd

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/kubernetes"

	"spillway/bench/rig"
	"spillway/bench/rig/swarm"
)

// Resources are what a crowd watches, as the proxy takes them.
const Resources = "services,configmaps,pods,endpointslices.discovery.k8s.io"

// Watches is how many each member can have open: of all Services, and of the ConfigMaps, of Pods by
// label and of EndpointSlices by label in one namespace. A binding of all service accounts permits
// the Services, bindings of the accounts of a namespace permit the others; but each tenth member
// watches the Pods of the next namespace, by a binding of its own.
const Watches = 4

const (
	perNamespace = 50 // members
	stranger     = 10 // each so-many-th has a binding of its own
)

// Accounts is n service accounts and what they watch.
type Accounts struct {
	n      int
	tokens []string
	writer *rig.Writer
}

// New makes the service accounts, their rights and their tokens, and the objects that they watch.
func New(ctx context.Context, p *rig.Pair, n int) (*Accounts, error) {
	c := &Accounts{n: n}
	client, err := kubernetes.NewForConfig(p.Config())
	if err != nil {
		return nil, err
	}
	rig.Say("making %d service accounts in %d namespaces", n, c.namespaces())
	if err := c.settle(ctx, client); err != nil {
		return nil, err
	}
	if c.tokens, err = c.enroll(ctx, client); err != nil {
		return nil, err
	}
	c.writer = p.NewWriter(c.objects())
	return c, p.Settle(ctx)
}

// Options are the watches of all members, those that come first for each, on a connection each,
// from now on.
func (c *Accounts) Options(ctx context.Context, server rig.Server, watches int) (swarm.Options, error) {
	o := swarm.Options{Server: server, PerConn: watches, Tokens: c.tokens, NoDelays: true}
	newest := make([]uint64, watches)
	for i, collection := range collections[:watches] {
		var err error
		if newest[i], err = server.Newest(ctx, collection); err != nil {
			return o, err
		}
	}
	for member := range c.n {
		for i, target := range c.targets(member)[:watches] {
			o.Targets = append(o.Targets,
				fmt.Sprintf("%s&watch=true&allowWatchBookmarks=true&timeoutSeconds=7200&resourceVersion=%d", target, newest[i]))
		}
	}
	return o, nil
}

// Writer changes the objects, one of each resource in turn.
func (c *Accounts) Writer() *rig.Writer { return c.writer }

// Reached is how many deliveries the first writes of a run of the Writer come to, if each member
// has so many watches.
func (c *Accounts) Reached(writes, watches int) int64 {
	deliveries := int64(0)
	for i := range writes {
		resource, namespace := i%Watches, i/Watches%c.namespaces()
		if resource < watches {
			deliveries += int64(c.watching(resource, namespace))
		}
	}
	return deliveries
}

// The resources, by their place among a member's watches.
const (
	services = iota
	configMaps
	pods
	endpointSlices
)

// collections are the resources in all namespaces.
var collections = [Watches]string{"/api/v1/services", "/api/v1/configmaps", "/api/v1/pods",
	"/apis/discovery.k8s.io/v1/endpointslices"}

// objectName is that of each object, and the value of the labels by which some are watched.
const objectName = "web"

const (
	podLabel   = "app"
	sliceLabel = "kubernetes.io/service-name"
)

// labelled selects by a label.
func labelled(name string) string {
	return url.Values{"labelSelector": {name + "=" + objectName}}.Encode()
}

// targets are what a member watches.
func (c *Accounts) targets(member int) []string {
	home := "/namespaces/" + namespace(c.home(member)) + "/"
	return []string{
		"/api/v1/services?",
		"/api/v1" + home + "configmaps?",
		"/api/v1/namespaces/" + namespace(c.podsOf(member)) + "/pods?" + labelled(podLabel),
		"/apis/discovery.k8s.io/v1" + home + "endpointslices?" + labelled(sliceLabel),
	}
}

// objects are the paths of what is written to: one object of each resource in each namespace.
func (c *Accounts) objects() []string {
	var paths []string
	for i := range c.namespaces() {
		in := "/namespaces/" + namespace(i) + "/"
		for _, collection := range collections {
			cut := strings.LastIndexByte(collection, '/')
			paths = append(paths, collection[:cut]+in+collection[cut+1:]+"/"+objectName)
		}
	}
	return paths
}

// watching is how many members watch a resource in a namespace.
func (c *Accounts) watching(resource, namespace int) int {
	n := 0
	for member := range c.n {
		sees := c.home(member)
		switch resource {
		case services:
			return c.n
		case pods:
			sees = c.podsOf(member)
		}
		if sees == namespace {
			n++
		}
	}
	return n
}

func (c *Accounts) namespaces() int { return (c.n + perNamespace - 1) / perNamespace }

// home is the namespace of a member.
func (c *Accounts) home(member int) int { return member / perNamespace }

// podsOf is the namespace whose pods a member watches.
func (c *Accounts) podsOf(member int) int {
	if isStranger(member) {
		return (c.home(member) + 1) % c.namespaces()
	}
	return c.home(member)
}

func isStranger(member int) bool { return member%stranger == 0 }

func namespace(i int) string { return fmt.Sprintf("crowd-%03d", i) }

func memberName(member int) string { return fmt.Sprintf("member-%04d", member) }
