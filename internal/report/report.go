// Package report makes the reports behind the status page, of the parts of a running proxy.
//
// It reads what each part counts anyway. Only the rejections of each user are counted for a report.
// Package status shows reports, and knows no part.
package report

import (
	"context"
	"slices"
	"time"

	"spillway/internal/flowcontrol"
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
func (p *Parts) Report(context.Context) (*status.Report, error) {
	watches := p.Server.Watches()
	now := time.Now()
	r := &status.Report{
		At: now, Version: p.Version, Started: p.Started, UptimeSeconds: now.Sub(p.Started).Seconds(),
		Upstream: p.upstream(), Memory: p.memory(),
		Watches: status.Watches{Total: len(watches), Items: make([]*status.Watch, 0, len(watches))},
		Ended:   map[string]uint64{}, Evictions: []*status.Eviction{}, Rejections: []*status.Rejection{},
		Files: fileStatuses(p.Files.States()),
	}
	for _, stall := range p.Clock.Stalled() {
		r.StalledLoops = append(r.StalledLoops, &status.StalledLoop{Loop: stall.Loop, Since: stall.Since})
	}
	watchesOf := map[*source.Source]int{}
	for i := range watches {
		watchesOf[watches[i].Source]++
		r.Watches.Items = append(r.Watches.Items, watchStatus(&watches[i], now))
	}
	r.Resources, r.Upstream.StaleResources, r.Upstream.StateAgeSeconds = p.Mirrors.Statuses(now, watchesOf)
	ended, evicted := p.Server.EndCounts()
	for reason, n := range ended {
		r.Ended[string(reason)] = n
	}
	for _, e := range slices.Backward(evicted) {
		r.Evictions = append(r.Evictions, evictionStatus(e))
	}
	for _, one := range p.Server.Rejections() {
		r.Rejections = append(r.Rejections, rejectionStatus(one))
	}
	return r, nil
}

// upstream is what is known of it besides its mirrors.
func (p *Parts) upstream() status.Upstream {
	up := status.Upstream{Host: p.Host}
	if err := p.Waiting(); err != nil {
		up.Waiting = status.OneLine(err.Error())
	}
	now := p.Mirrors.Capabilities()
	if up.Version = now.Version(); up.Version != "" {
		up.Capabilities = map[string]string{}
		for _, one := range now.All() {
			up.Capabilities[one.Name] = one.Value.String()
		}
	}
	return up
}

func (p *Parts) memory() status.Memory {
	if p.Guard == nil {
		return status.Memory{Steps: []string{}}
	}
	state := p.Guard.State()
	return status.Memory{LimitBytes: state.Limit, InUseBytes: state.InUse, Steps: state.Taken()}
}

func watchStatus(w *watch.Watch, now time.Time) *status.Watch {
	info := w.Source.Resource().Info
	selected := redact(info, w.Selected)
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
	selected := redact(e.Resource, e.Selected)
	return &status.Eviction{
		At: e.At, User: e.User, UserAgent: e.Agent, Peer: e.Client, Resource: e.Resource.String(),
		Namespace: selected.Namespace, Name: selected.Name, LabelSelector: selected.Labels, FieldSelector: selected.Fields,
		AgeSeconds: e.At.Sub(e.Began).Seconds(), Bytes: e.Bytes,
	}
}

func rejectionStatus(one flowcontrol.RejectedFlow) *status.Rejection {
	r := &status.Rejection{At: one.At, Since: one.Since, User: one.Flow.User, Count: one.Counted, Limit: one.Limit,
		Reason: string(one.Reason)}
	if one.Flow.Addr.IsValid() {
		r.Peer = one.Flow.Addr.String()
	}
	return r
}

// fileStatuses are the files that are followed.
func fileStatuses(states []rotation.FileState) []*status.File {
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

// hidden is shown in place of what redact leaves out.
const hidden = "(hidden)"

// redact leaves of what a watch selects what may be shown: of Secrets neither a name nor a label
// that may be made of one.
func redact(info *object.Resource, selected watch.SelectionText) watch.SelectionText {
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
