package mirror

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"spillway/internal/health"
	"spillway/internal/mirror/states"
	"spillway/internal/object"
	"spillway/internal/status"
)

// Describe is the part of /readyz?verbose about mirrors: a line for each.
func (s *Set) Describe() []string {
	now := time.Now()
	var lines []string
	for _, of := range s.states() {
		state := of.State()
		mark, text := "[!]", strings.ReplaceAll(string(state.Kind()), "_", " ")
		if state.Kind() == states.KindSynced {
			mark, text = "[+]", "ok: synced"
		}
		line := fmt.Sprintf("%smirror %s %s for %s", mark, of.resource, text, now.Sub(state.Since()).Round(time.Second))
		if reason := state.Cause().Text; reason != "" {
			line += ": " + status.OneLine(reason)
		}
		if next := state.Next(); next.After(now) {
			line += fmt.Sprintf("; next attempt within %s", next.Sub(now).Round(time.Second))
		}
		lines = append(lines, line)
	}
	return lines
}

// UpstreamReady is the check behind /readyz of whether the API server answers. An unreachable API
// server makes no replica unready, because it is unreachable for all, and each continues to serve
// what it can. A limit that is not 0 is how long that holds.
func (s *Set) UpstreamReady(limit time.Duration) health.Check {
	return func() (string, error) {
		trouble := s.client.CredentialTrouble()
		if since := s.client.SilentSince(); limit > 0 && !since.IsZero() && time.Since(since) >= limit {
			why := ""
			if trouble != nil {
				why = ": " + trouble.Error()
			}
			return "", fmt.Errorf("the API server has not answered for %s, and --readyz-upstream-timeout is %s%s",
				time.Since(since).Round(time.Second), limit, why)
		}
		if trouble != nil {
			return "", health.Warning(trouble.Error())
		}
		stale := s.staleStates()
		if len(stale.resources) == 0 {
			return "", s.warnOfSilence()
		}
		use := "served from their last state"
		if s.o.AsksAboutAll {
			use = "kept in their last state, which is served to clients whose rights are known; " +
				"the API server cannot review the rights of others"
		}
		return "", health.Warning(fmt.Sprintf("unreachable; %d resources are %s, and were current %s ago or less: %s",
			len(stale.resources), use, stale.oldest.Round(time.Second), strings.Join(stale.resources, ", ")))
	}
}

// warnOfSilence returns a health.Warning if upstream has not answered for a while, though no state
// is old yet.
func (s *Set) warnOfSilence() error {
	since := s.client.SilentSince()
	if !isStale(since) {
		return nil
	}
	return health.Warning(fmt.Sprintf("the API server has not answered for %s", time.Since(since).Round(time.Second)))
}

// Ready is the check behind /readyz: every named resource has had its first state, or is known to
// pass through.
func (s *Set) Ready() (string, error) {
	running := *s.running.Load()
	for _, info := range *s.named.Load() {
		if m := running[info.GVR]; m != nil && !m.resource.IsReady() && m.reflector.Status().Err == nil &&
			m.state.State().Kind() != states.KindRefused {
			return "", fmt.Errorf("%s has not been listed yet", info)
		}
	}
	if named := *s.named.Load(); len(named) > 0 && !slices.ContainsFunc(named, func(info *object.Resource) bool {
		return running[info.GVR] != nil && running[info.GVR].resource.IsReady()
	}) {
		return "", health.Warning("no named resource is mirrored, and all requests pass through: the reasons are below")
	}
	objects := 0
	for _, m := range running {
		if snapshot := m.resource.Snapshot(); snapshot != nil {
			objects += snapshot.Len()
		}
	}
	return fmt.Sprintf("%d resources, %d objects", len(running), objects), nil
}

// namedRefusalsLimit is how many resources a line names of those that are never mirrored for the
// same reason, and refusalReasonsLimit how many reasons it names.
const namedRefusalsLimit, refusalReasonsLimit = 3, 5

// PassThrough is the detail behind /readyz?verbose: what is never mirrored.
func (s *Set) PassThrough() (string, error) {
	names := map[string][]string{} // by reason
	s.mu.Lock()
	for gvr, e := range s.mu.entries {
		if e.refused != "" {
			names[e.refused] = append(names[e.refused], gvr.GroupResource().String())
		}
	}
	s.mu.Unlock()
	return describeRefusals(names), nil
}

// describeRefusals is a line of limited length about resources by the reason why they are never
// mirrored; "": there are none.
func describeRefusals(names map[string][]string) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(names)) {
		if len(parts) == refusalReasonsLimit {
			parts = append(parts, fmt.Sprintf("and for %d more reasons", len(names)-len(parts)))
			break
		}
		all := slices.Compact(slices.Sorted(slices.Values(names[reason]))) // versions
		text := strings.Join(all[:min(len(all), namedRefusalsLimit)], ", ")
		if more := len(all) - namedRefusalsLimit; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, text+" ("+reason+")")
	}
	if len(parts) == 0 {
		return ""
	}
	return "never mirrored: " + strings.Join(parts, "; ")
}

// DescribeCapabilities is the detail behind /readyz?verbose: what upstream can do.
func (s *Set) DescribeCapabilities() (string, error) { return s.Capabilities().String(), nil }
