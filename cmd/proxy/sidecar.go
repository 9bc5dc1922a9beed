package main

import (
	"time"

	"go.uber.org/zap"

	"spillway/internal/sidecar"
)

// podFiles is what a sidecar shows the other containers of its pod, and where they find it.
type podFiles struct {
	identity   *sidecar.Identity
	projection *sidecar.Projection
}

// newPodFiles writes them; nil if this is no sidecar. They are there before anything is served.
func newPodFiles(o *options, log *zap.Logger) (*podFiles, error) {
	if o.sidecarDir == "" {
		return nil, nil
	}
	identity, err := sidecar.KeepIdentity(o.sidecarKeyDir, time.Now())
	if err != nil {
		return nil, o.refuse("sidecar-key-dir", o.sidecarKeyDir, "cannot be used: "+sidecar.Cause(err)+"; mount an emptyDir there")
	}
	projection := sidecar.NewProjection(sidecar.AccountDir, o.sidecarDir, identity.Authority, log)
	if err := projection.Write(); err != nil {
		return nil, o.refuse("sidecar-dir", o.sidecarDir, "cannot be filled: "+sidecar.Cause(err)+"; mount an emptyDir there")
	}
	return &podFiles{identity, projection}, nil
}
