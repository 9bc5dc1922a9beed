package mirror

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"spillway/internal/mirror/states"
	"spillway/internal/upstream/capabilities"
)

const (
	// capabilitiesFirstDelay is how long after the start upstream's capabilities are probed: mirrors
	// need upstream more. Whether it serves watch-lists they find out themselves.
	capabilitiesFirstDelay = 10 * time.Second
	// capabilitiesInterval is how often they are probed at least. They are probed sooner after another
	// version or a failure was seen, but not within minCapabilitiesInterval. While several versions
	// answer, they are probed each rollingCheckInterval.
	capabilitiesInterval    = 10 * time.Minute
	minCapabilitiesInterval = 15 * time.Second
	// capabilitiesRetryInterval is the pause after a probe that failed, which doubles with each
	// further one up to capabilitiesInterval. Whatever is seen meanwhile shortens no pause: what makes
	// probes fail, such as a slow upstream, makes requests of the mirrors fail, too.
	capabilitiesRetryInterval = 30 * time.Second
)

// capabilityProbes decides when upstream's capabilities are probed, and logs what they are. One
// goroutine owns it.
type capabilityProbes struct {
	mirrors *Set
	log     *zap.Logger

	earliest, latest time.Time   // when the next probe is sent: as soon as something has changed, or without that
	retries          states.Pace // of probes that fail
	// Of the last probe that succeeded: when it was sent, upstream's version, and how often requests
	// of the mirrors had failed before.
	probedAt time.Time
	version  string
	failures uint64

	isProbed bool                 // successfully or not
	logged   capabilities.Summary // the last that were
}

func newCapabilityProbes(s *Set, log *zap.Logger, first time.Time) *capabilityProbes {
	return &capabilityProbes{mirrors: s, log: log, earliest: first, latest: first, retries: newCapabilityRetries(),
		version: s.client.Capabilities().Version()}
}

func newCapabilityRetries() states.Pace {
	return states.Pace{First: capabilitiesRetryInterval, Longest: capabilitiesInterval}
}

// followCapabilities probes upstream's capabilities until the mirrors end.
func (s *Set) followCapabilities() {
	p := newCapabilityProbes(s, s.log, time.Now().Add(capabilitiesFirstDelay))
	for s.pause(watchCheckInterval) {
		if now := time.Now(); p.isDue(now) {
			p.probe(now)
		}
		p.logChange()
	}
}

// isDue reports whether it is time for a probe.
func (p *capabilityProbes) isDue(now time.Time) bool {
	seen := p.mirrors.client.Capabilities()
	switch {
	case now.Before(p.earliest):
		return false
	case !now.Before(p.latest), seen.Version() != p.version, p.mirrors.countFailures() != p.failures:
		return true
	}
	return seen.Oldest != seen.Newest && now.Sub(p.probedAt) >= rollingCheckInterval
}

// countFailures is how often requests of the mirrors have failed.
func (s *Set) countFailures() (n uint64) {
	for _, m := range s.all() {
		n += m.reflector.Status().Failures
	}
	return n
}

// probe probes by the resource of any mirror that is well.
func (p *capabilityProbes) probe(now time.Time) {
	all := p.mirrors.all()
	i := slices.IndexFunc(all, func(m *mirror) bool { return m.resource.IsReady() && m.isWell() })
	if i < 0 {
		return
	}
	m := all[i]
	p.isProbed = true
	failures := p.mirrors.countFailures()
	if err := m.prober.ProbeCapabilities(p.mirrors.ctx); err != nil {
		p.retries.Note(now)
		p.earliest, p.latest = p.retries.Due(), p.retries.Due()
		p.log.Debug("upstream's capabilities were not found out",
			zap.Stringer("resource", m.resource.Info), zap.Error(err))
		return
	}
	p.retries = newCapabilityRetries()
	p.earliest, p.latest = now.Add(minCapabilitiesInterval), now.Add(capabilitiesInterval)
	p.probedAt, p.version, p.failures = now, p.mirrors.client.Capabilities().Version(), failures
}

// logChange logs the capabilities once they were probed, and when they have changed.
func (p *capabilityProbes) logChange() {
	now := p.mirrors.client.Capabilities()
	if now == p.logged || !p.isProbed {
		return
	}
	fields := []zap.Field{zap.String("version", now.Version())}
	for _, capability := range now.All() {
		fields = append(fields, zap.Stringer(capability.Name, capability.Value))
	}
	p.log.Info("capabilities of upstream", fields...)
	p.logged = now
}

// Capabilities are what upstream can do, as far as it is known.
func (s *Set) Capabilities() capabilities.Summary { return s.client.Capabilities() }

// capabilityMetrics show upstream's capabilities.
type capabilityMetrics struct{ info, capability *prometheus.Desc }

func newCapabilityMetrics() capabilityMetrics {
	return capabilityMetrics{
		info: prometheus.NewDesc("spillway_upstream_info",
			"1 for the version of the API server. If several versions answer at its address, version is "+
				"the oldest, and newest_version the newest.",
			[]string{"version", "newest_version"}, nil),
		capability: prometheus.NewDesc("spillway_upstream_capability",
			"1 if the API server has the capability (watch_list or watch_list_compression), 0 if not. The "+
				"metric is missing while that is not known. If several versions answer at one address, the "+
				"least able version counts.",
			[]string{"capability"}, nil),
	}
}

func (c capabilityMetrics) describe(out chan<- *prometheus.Desc) {
	out <- c.info
	out <- c.capability
}

func (c capabilityMetrics) collect(out chan<- prometheus.Metric, now capabilities.Summary) {
	if now.Oldest != "" {
		out <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, now.Oldest, now.Newest)
	}
	for _, capability := range now.All() {
		if capability.Value != capabilities.Unknown {
			out <- prometheus.MustNewConstMetric(c.capability, prometheus.GaugeValue,
				float64(capability.Value-capabilities.Absent), capability.Name)
		}
	}
}
