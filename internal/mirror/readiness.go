package mirror

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"spillway/internal/health"
	"spillway/internal/mirror/states"
	"spillway/internal/status"
)

// Describe is the part of /readyz?verbose about mirrors: a line for each.
func (m *Set) Describe() []string {
	now := time.Now()
	var lines []string
	for _, one := range m.states() {
		s := one.State()
		mark, state := "[!]", strings.ReplaceAll(string(s.Kind()), "_", " ")
		if s.Kind() == states.KindSynced {
			mark, state = "[+]", "ok: synced"
		}
		line := fmt.Sprintf("%smirror %s %s for %s", mark, one.resource, state, now.Sub(s.Since()).Round(time.Second))
		if reason := s.Cause().Text; reason != "" {
			line += ": " + status.OneLine(reason)
		}
		if next := s.Next(); next.After(now) {
			line += fmt.Sprintf("; next attempt within %s", next.Sub(now).Round(time.Second))
		}
		lines = append(lines, line)
	}
	return lines
}

// UpstreamReady is the check behind /readyz of whether the apiserver answers. An apiserver that is
// away makes no replica unready, since all have the same, and each goes on serving what it can;
// unless limit says for how long.
func (m *Set) UpstreamReady(limit time.Duration) health.Check {
	return func() (string, error) {
		trouble := m.client.CredentialTrouble()
		if since := m.client.SilentSince(); limit > 0 && !since.IsZero() && time.Since(since) >= limit {
			why := ""
			if trouble != nil {
				why = ": " + trouble.Error()
			}
			return "", fmt.Errorf("the apiserver has not answered for %s, and --readyz-upstream-timeout is %s%s",
				time.Since(since).Round(time.Second), limit, why)
		}
		if trouble != nil {
			return "", health.Warning(trouble.Error())
		}
		names, oldest, _ := m.oldStates()
		if len(names) == 0 {
			return "", m.silence()
		}
		what := "served from their last state"
		if m.o.AsksAboutAll {
			what = "kept in their last state, which is served to clients whose rights are known; " +
				"the apiserver cannot review the rights of others"
		}
		return "", health.Warning(fmt.Sprintf("away; %d resources are %s, and were current %s ago or less: %s", len(names),
			what,
			oldest.Round(time.Second), strings.Join(names, ", ")))
	}
}

// silence is the Notice that upstream has not answered for a while, though no state is old yet.
// nil: it answers.
func (m *Set) silence() error {
	since := m.client.SilentSince()
	if since.IsZero() || time.Since(since) < awayThreshold {
		return nil
	}
	return health.Warning(fmt.Sprintf("the API server has not answered for %s", time.Since(since).Round(time.Second)))
}

// Ready is the check behind /readyz: every named resource has had its first state, or is known to
// pass through.
func (m *Set) Ready() (string, error) {
	running := *m.running.Load()
	objects := 0
	for _, info := range *m.named.Load() {
		if found := running[info.GVR]; found != nil && !found.resource.IsReady() && found.reflector.Status().Err == nil &&
			found.state.State().Kind() != states.KindRefused {
			return "", fmt.Errorf("%s has not been listed yet", info)
		}
	}
	for _, found := range running {
		if s := found.resource.Snapshot(); s != nil {
			objects += s.Len()
		}
	}
	return fmt.Sprintf("%d resources, %d objects", len(running), objects), nil
}

// PassThrough is the detail behind /readyz?verbose: what is never mirrored.
func (m *Set) PassThrough() (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for gvr, e := range m.mu.entries {
		if e.refused != "" {
			names = append(names, gvr.GroupResource().String()+" ("+e.refused+")")
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	slices.Sort(names)
	return fmt.Sprint("never mirrored: ", slices.Compact(names)), nil
}

// DescribeAbilities is the detail behind /readyz?verbose: what upstream can do.
func (m *Set) DescribeAbilities() (string, error) { return m.Abilities().String(), nil }
