package main

import (
	"time"

	"go.uber.org/zap"

	"spillway/internal/config"
	"spillway/internal/sidecar/files"
)

// podFiles are the files by which the other containers of a sidecar's pod find and trust it.
type podFiles struct {
	identity   *files.ServingIdentity
	projection *files.Projection
}

// newPodFiles writes them; nil: this is no sidecar. They are complete before anything is served.
func newPodFiles(o *config.Settings, log *zap.Logger) (*podFiles, error) {
	if o.SidecarDir == "" {
		return nil, nil
	}
	identity, err := files.KeepIdentity(o.SidecarKeyDir, time.Now())
	if err != nil {
		return nil, o.Refuse("sidecar-key-dir", o.SidecarKeyDir,
			"cannot be used: "+files.Cause(err)+"; mount an emptyDir there")
	}
	projection := files.NewProjection(files.AccountDir, o.SidecarDir, identity.Authority, log)
	if err := projection.Write(); err != nil {
		return nil, o.Refuse("sidecar-dir", o.SidecarDir, "cannot be filled: "+files.Cause(err)+"; mount an emptyDir there")
	}
	return &podFiles{identity, projection}, nil
}
