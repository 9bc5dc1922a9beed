// Package report makes the reports behind the status page, of the parts of a running proxy.
//
// It asks each part for what it counts anyway; nothing is counted for a report. Package status
// shows reports, and knows no part.
package report

import (
	"context"
	"slices"
	"time"

	"spillway/internal/memory"
	"spillway/internal/mirror"
	"spillway/internal/object"
	"spillway/internal/rotation"
	"spillway/internal/serve"
	"spillway/internal/source"
	"spillway/internal/status"
	"spillway/internal/watch"
	"spillway/internal/watchdog"
)

// Parts is what a report is made of.
type Parts struct {
	Version string
	Host    string // upstream's
	Started time.Time
	Waiting func() error // why upstream has not answered since the start; nil once it has
	Mirrors *mirror.Set
	Server  *serve.Server
	Guard   *memory.Guard // nil: there is no limit
	Files   *rotation.FollowedFiles
	Clock   *watchdog.Monitor
}

// Report says how all parts stand now.
func (s *Parts) Report(context.Context) (*status.Report, error) {
	watches := s.Server.Watches()
	now := time.Now()
	r := &status.Report{
		At: now, Version: s.Version, Started: s.Started, UptimeSeconds: now.Sub(s.Started).Seconds(),
		Upstream: s.upstream(), Memory: s.memory(),
		Watches: status.Watches{Total: len(watches), Items: make([]*status.Watch, 0, len(watches))},
		Ended:   map[string]uint64{}, Evictions: []*status.Eviction{}, Files: fileStatus(s.Files.States()),
	}
	for _, stall := range s.Clock.Stalled() {
		r.StalledLoops = append(r.StalledLoops, &status.StalledLoop{Loop: stall.Loop, Since: stall.Since})
	}
	on := map[*source.Source]int{}
	for i := range watches {
		on[watches[i].Source]++
		r.Watches.Items = append(r.Watches.Items, watchStatus(&watches[i], now))
	}
	r.Resources, r.Upstream.StaleResources, r.Upstream.StateAgeSeconds = s.Mirrors.Statuses(now, on)
	ended, evicted := s.Server.EndCounts()
	for reason, n := range ended {
		r.Ended[string(reason)] = n
	}
	for _, e := range slices.Backward(evicted) {
		r.Evictions = append(r.Evictions, evictionStatus(e))
	}
	return r, nil
}

// upstream is what is known of it besides its mirrors.
func (s *Parts) upstream() status.Upstream {
	up := status.Upstream{Host: s.Host}
	if err := s.Waiting(); err != nil {
		up.Waiting = status.OneLine(err.Error())
	}
	now := s.Mirrors.Abilities()
	if up.Version = now.Version(); up.Version != "" {
		up.Abilities = map[string]string{}
		for _, one := range now.All() {
			up.Abilities[one.Name] = one.Value.String()
		}
	}
	return up
}

func (s *Parts) memory() status.Memory {
	if s.Guard == nil {
		return status.Memory{Steps: []string{}}
	}
	state := s.Guard.State()
	return status.Memory{LimitBytes: state.Limit, InUseBytes: state.InUse, Steps: state.Taken()}
}

func watchStatus(w *watch.Watch, now time.Time) *status.Watch {
	info := w.Source.Resource().Info
	selected := discreet(info, w.Selected)
	one := &status.Watch{
		ID: w.ID, User: w.User, UserAgent: w.Agent, Peer: w.Client, Protocol: w.Protocol, Encoding: w.Encoding,
		Resource: info.String(), Version: info.GVR.Version,
		Namespace: selected.Namespace, Name: selected.Name, LabelSelector: selected.Labels, FieldSelector: selected.Fields,
		Phase: string(w.Phase), Began: w.Began, AgeSeconds: now.Sub(w.Began).Seconds(),
		DeadlineSeconds: w.Deadline.Sub(now).Seconds(),
		LagEvents:       w.Lag, LagSeconds: max(w.Behind, w.Blocked).Seconds(), UnsentBytes: w.Unsent,
		BlockedSeconds: w.Blocked.Seconds(), Bytes: w.Bytes,
	}
	if !w.LastEvent.IsZero() {
		one.LastEvent = &w.LastEvent
	}
	return one
}

func evictionStatus(e watch.Eviction) *status.Eviction {
	selected := discreet(e.Resource, e.Selected)
	return &status.Eviction{
		At: e.At, User: e.User, UserAgent: e.Agent, Peer: e.Client, Resource: e.Resource.String(),
		Namespace: selected.Namespace, Name: selected.Name, LabelSelector: selected.Labels, FieldSelector: selected.Fields,
		AgeSeconds: e.At.Sub(e.Began).Seconds(), Bytes: e.Bytes,
	}
}

// fileStatus is the files on the status page.
func fileStatus(states []rotation.FileState) []*status.File {
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

// hidden stands for what is not shown.
const hidden = "(hidden)"

// discreet is what is shown of what a watch selects: of Secrets neither a name nor a label that may
// be made of one.
func discreet(info *object.Resource, selected watch.SelectionText) watch.SelectionText {
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
