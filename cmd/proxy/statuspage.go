package main

import (
	"context"
	"slices"
	"time"

	"spillway/internal/memory"
	"spillway/internal/mirror"
	"spillway/internal/object"
	"spillway/internal/rotation"
	"spillway/internal/serve"
	"spillway/internal/status"
)

// standing is what a status report is made of.
type standing struct {
	host    string // upstream's
	started time.Time
	startup *startup
	mirrors *mirror.Set
	server  *serve.Server
	guard   *memory.Guard // nil: there is no limit
	files   *rotation.Followed
}

// report tells how everything stands now. It asks what counts by itself; nothing is counted for it.
func (s *standing) report(ctx context.Context) (*status.Report, error) {
	watches, err := s.server.Watches(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	r := &status.Report{
		At: now, Version: versionText(), Started: s.started, UptimeSeconds: now.Sub(s.started).Seconds(),
		Upstream: status.Upstream{Host: s.host}, Memory: s.memory(),
		Watches: status.Watches{Total: len(watches), Items: make([]*status.Watch, 0, len(watches))},
		Ended:   map[string]uint64{}, Evictions: []*status.Eviction{}, Files: fileStatus(s.files.States()),
	}
	if err := s.startup.reason(); err != nil {
		r.Upstream.Waiting = status.OneLine(err.Error())
	}
	on := map[*serve.Source]int{}
	for i := range watches {
		on[watches[i].Source]++
		r.Watches.Items = append(r.Watches.Items, watchStatus(&watches[i], now))
	}
	r.Resources, r.Upstream.Away, r.Upstream.StateAgeSeconds = s.mirrors.Statuses(now, on)
	ended, evicted := s.server.Ended()
	for reason, n := range ended {
		r.Ended[string(reason)] = n
	}
	for _, e := range slices.Backward(evicted) {
		r.Evictions = append(r.Evictions, evictionStatus(e))
	}
	return r, nil
}

func (s *standing) memory() status.Memory {
	m := status.Memory{Forgone: []string{}}
	if s.guard == nil {
		return m
	}
	state := s.guard.State()
	m.LimitBytes, m.InUseBytes = state.Limit, state.InUse
	for _, step := range state.Steps {
		if step.Taken {
			m.Forgone = append(m.Forgone, step.Name)
		}
	}
	return m
}

func watchStatus(w *serve.Watch, now time.Time) *status.Watch {
	info := w.Source.Resource().Info
	selected := discreet(info, w.Selected)
	one := &status.Watch{
		ID: w.ID, User: w.User, UserAgent: w.Agent, Peer: w.Client, Protocol: w.Protocol, Encoding: w.Encoding,
		Resource: info.String(), Version: info.GVR.Version,
		Namespace: selected.Namespace, Name: selected.Name, LabelSelector: selected.Labels, FieldSelector: selected.Fields,
		Phase: string(w.Phase), Began: w.Began, AgeSeconds: now.Sub(w.Began).Seconds(), DeadlineSeconds: w.Deadline.Sub(now).Seconds(),
		LagEvents: w.Lag, LagSeconds: max(w.Behind, w.Blocked).Seconds(), UnsentBytes: w.Unsent, BlockedSeconds: w.Blocked.Seconds(), Bytes: w.Bytes,
	}
	if !w.LastEvent.IsZero() {
		one.LastEvent = &w.LastEvent
	}
	return one
}

func evictionStatus(e serve.Eviction) *status.Eviction {
	selected := discreet(e.Resource, e.Selected)
	return &status.Eviction{
		At: e.At, User: e.User, UserAgent: e.Agent, Peer: e.Client, Resource: e.Resource.String(),
		Namespace: selected.Namespace, Name: selected.Name, LabelSelector: selected.Labels, FieldSelector: selected.Fields,
		AgeSeconds: e.At.Sub(e.Began).Seconds(), Bytes: e.Bytes,
	}
}

// fileStatus is the files on the status page.
func fileStatus(states []rotation.State) []*status.File {
	all := []*status.File{}
	for _, s := range states {
		one := &status.File{File: s.File, Use: s.Use, Since: s.Since, Changes: s.Changes}
		if !s.Expires.IsZero() {
			one.Expires = &s.Expires
		}
		if s.Err != nil {
			one.Error = status.OneLine(s.Err.Error())
		}
		all = append(all, one)
	}
	return all
}

// hidden stands for what is not told.
const hidden = "(hidden)"

// discreet is what is told of what a watch selects: of Secrets nobody learns a name here, nor a label that may be made of one.
func discreet(info *object.Resource, selected serve.Selected) serve.Selected {
	if gvr := info.GVR; gvr.Group != "" || gvr.Resource != "secrets" {
		return selected
	}
	for _, part := range []*string{&selected.Name, &selected.Labels, &selected.Fields} {
		if *part != "" {
			*part = hidden
		}
	}
	return selected
}
