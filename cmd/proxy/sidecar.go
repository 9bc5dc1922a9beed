package main

import (
	"time"

	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/sidecar"
)

// podFiles is what a sidecar shows the other containers of its pod, and where they find it.
type podFiles struct {
	identity   *sidecar.ServingIdentity
	projection *sidecar.Projection
}

// newPodFiles writes them; nil if this is no sidecar. They are there before anything is served.
func newPodFiles(o *config.Settings, log *zap.Logger) (*podFiles, error) {
	if o.SidecarDir == "" {
		return nil, nil
	}
	identity, err := sidecar.KeepIdentity(o.SidecarKeyDir, time.Now())
	if err != nil {
		return nil, o.Refuse("sidecar-key-dir", o.SidecarKeyDir,
			"cannot be used: "+sidecar.Cause(err)+"; mount an emptyDir there")
	}
	projection := sidecar.NewProjection(sidecar.AccountDir, o.SidecarDir, identity.Authority, log)
	if err := projection.Write(); err != nil {
		return nil, o.Refuse("sidecar-dir", o.SidecarDir, "cannot be filled: "+sidecar.Cause(err)+"; mount an emptyDir there")
	}
	return &podFiles{identity, projection}, nil
}
