//go:build requirements

// Package test holds the suites that need more than the proxy itself does: a real control plane,
// the conformance suite and the simulation. This file names what they need, so that go.mod keeps
// it.
package test

import (
	_ "go.uber.org/goleak"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	_ "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	_ "k8s.io/client-go/dynamic/dynamicinformer"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/metadata/metadatainformer"
	_ "sigs.k8s.io/controller-runtime"
)
