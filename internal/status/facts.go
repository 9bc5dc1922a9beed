package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Fact is one of a report's few most important figures. Alert highlights it.
type Fact struct {
	Name, Text string
	Alert      bool
}

const (
	// recentEvictionPeriod is how long an eviction is highlighted.
	recentEvictionPeriod = 5 * time.Minute
	// certificateAlertPeriod is how long before its end a certificate is highlighted.
	certificateAlertPeriod = 24 * time.Hour
)

// Facts are the lines at the top of the page, which tell the state of the proxy at a glance.
func (r *Report) Facts() []Fact {
	facts := []Fact{r.upstreamFact()}
	if r.Upstream.Version != "" {
		facts = append(facts, r.capabilityFact())
	}
	facts = append(facts, r.mirrorFact())
	if len(r.StalledLoops) > 0 {
		facts = append(facts, r.loopFact())
	}
	facts = append(facts,
		Fact{Name: "Watches", Text: Count(r.Watches.Total) + ", " + Bytes(r.Watches.BytesPerSecond) + "/s"},
		r.evictionFact(),
		r.memoryFact(),
		r.fileFact(),
		Fact{Name: "Version", Text: Printable(r.Version) + ", up " + Seconds(r.UptimeSeconds)},
	)
	return facts
}

func (r *Report) upstreamFact() Fact {
	host := Printable(r.Upstream.Host)
	switch {
	case r.Upstream.Waiting != "":
		return Fact{Name: "Upstream", Alert: true, Text: "has not answered yet, " + host + ": " +
			Printable(r.Upstream.Waiting)}
	case len(r.Upstream.StaleResources) == 0:
		return Fact{Name: "Upstream", Text: "answers, " + host}
	}
	return Fact{
		Name: "Upstream", Alert: true,
		Text: fmt.Sprintf("unreachable, states are at most %s old: %s; %s", Seconds(r.Upstream.StateAgeSeconds),
			Printable(strings.Join(r.Upstream.StaleResources, ", ")), host),
	}
}

// capabilityFact is what upstream can do.
func (r *Report) capabilityFact() Fact {
	text := r.Upstream.Version
	for _, name := range slices.Sorted(maps.Keys(r.Upstream.Capabilities)) {
		text += ", " + strings.ReplaceAll(name, "_", " ") + " " + r.Upstream.Capabilities[name]
	}
	return Fact{Name: "Capabilities", Text: Printable(text)}
}

func (r *Report) mirrorFact() Fact {
	synced, objects, bytes := 0, 0, int64(0)
	for _, m := range r.Resources {
		objects, bytes = objects+m.Objects, bytes+m.ObjectBytes
		if m.Synced {
			synced++
		}
	}
	return Fact{
		Name: "Mirrored", Alert: synced < len(r.Resources),
		Text: fmt.Sprintf("%d of %d resources, %s objects, %s", synced, len(r.Resources), Count(objects),
			Bytes(float64(bytes))),
	}
}

// loopFact names the loops that do not move.
func (r *Report) loopFact() Fact {
	names := make([]string, 0, len(r.StalledLoops))
	for _, l := range r.StalledLoops {
		names = append(names, fmt.Sprintf("%s for %s", l.Loop, Seconds(r.At.Sub(l.Since).Seconds())))
	}
	return Fact{Name: "Stalled", Alert: true, Text: Printable(strings.Join(names, ", "))}
}

func (r *Report) memoryFact() Fact {
	m := r.Memory
	if m.LimitBytes == 0 {
		return Fact{Name: "Memory", Text: "no limit"}
	}
	text := Bytes(float64(m.InUseBytes)) + " of " + Bytes(float64(m.LimitBytes))
	if len(m.Steps) > 0 {
		text += ", steps taken: " + Printable(strings.Join(m.Steps, ", "))
	}
	return Fact{Name: "Memory", Text: text, Alert: len(m.Steps) > 0}
}

// fileFact is about the files that are followed: the first whose current content could not be taken
// into use, or else the certificate that ends first.
func (r *Report) fileFact() Fact {
	var first *File // of those that end
	for _, f := range r.Files {
		if f.Error != "" {
			return Fact{Name: "Files", Alert: true, Text: Printable("kept from " + f.Since.UTC().Format(time.DateTime) +
				" UTC: " + f.Error)}
		}
		if f.Expires != nil && (first == nil || f.Expires.Before(*first.Expires)) {
			first = f
		}
	}
	text := Count(len(r.Files)) + " followed"
	if first == nil {
		return Fact{Name: "Files", Text: text}
	}
	left := first.Expires.Sub(r.At)
	end := "ends in " + Seconds(left.Seconds())
	if left <= 0 {
		end = "has ended"
	}
	return Fact{Name: "Files", Alert: left < certificateAlertPeriod, Text: text + ", " + Printable(first.File) + " " + end}
}

func (r *Report) evictionFact() Fact {
	evicted := uint64(0)
	for reason, ended := range r.Ended {
		if isEviction(reason) {
			evicted += ended
		}
	}
	recent := len(r.Evictions) > 0 && r.At.Sub(r.Evictions[0].At) < recentEvictionPeriod
	return Fact{Name: "Evicted", Text: Count(evicted), Alert: recent}
}

// isEviction reports that watches with this EndReason ended because their clients read too slowly,
// or nothing.
func isEviction(reason string) bool { return strings.HasPrefix(reason, "slow_client_") }

// EndFacts are how many watches have ended, by reason.
func (r *Report) EndFacts() []Fact {
	facts := make([]Fact, 0, len(r.Ended))
	for _, reason := range slices.Sorted(maps.Keys(r.Ended)) {
		facts = append(facts, Fact{Name: Printable(reason), Text: Count(r.Ended[reason]), Alert: isEviction(reason)})
	}
	return facts
}

// Shown says which watches are shown.
func (r *Report) Shown() string {
	w, sort := r.Watches, Printable(r.Watches.Sort)
	switch {
	case w.Total == 0:
		return "There are no watches."
	case len(w.Items) < w.Total:
		return fmt.Sprintf("%s of %s watches, the first by %s; %s more are not shown.", Count(len(w.Items)),
			Count(w.Total), sort, Count(w.Total-len(w.Items)))
	case w.Total == 1:
		return "One watch."
	}
	return fmt.Sprintf("All %s watches, by %s.", Count(w.Total), sort)
}

// Moment is when the report was made.
func (r *Report) Moment() string { return r.At.UTC().Format(time.DateTime) + " UTC" }
