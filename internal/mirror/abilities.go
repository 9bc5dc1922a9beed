package mirror

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"spillway/internal/mirror/states"
	"spillway/internal/upstream/abilities"
)

const (
	// abilitiesFirstDelay is how long after the start upstream's abilities are probed: mirrors need
	// upstream more. Whether it serves watch-lists they find out themselves.
	abilitiesFirstDelay = 10 * time.Second
	// abilitiesInterval is how often they are probed at least. They are probed sooner after another
	// version or a failure was seen, but not within minAbilitiesInterval. While several versions
	// answer, they are probed each rollingCheckInterval.
	abilitiesInterval    = 10 * time.Minute
	minAbilitiesInterval = 15 * time.Second
	// abilitiesRetryInterval is the pause after a probe that failed, which doubles with each further
	// one up to abilitiesInterval. Whatever is seen meanwhile shortens no pause: what makes probes
	// fail, such as a slow upstream, makes requests of the mirrors fail, too.
	abilitiesRetryInterval = 30 * time.Second
)

// abilityProbes decides when upstream's abilities are probed, and logs what they are. One goroutine
// owns it.
type abilityProbes struct {
	mirrors *Set
	log     *zap.Logger

	earliest, latest time.Time   // when the next probe is sent: as soon as something has changed, or without that
	retries          states.Pace // of probes that fail
	// Of the last probe that succeeded: when it was sent, upstream's version, and how often requests
	// of the mirrors had failed before.
	probedAt time.Time
	version  string
	failures uint64

	isProbed bool              // successfully or not
	logged   abilities.Summary // the last that were
}

func newAbilityProbes(s *Set, log *zap.Logger, first time.Time) *abilityProbes {
	return &abilityProbes{mirrors: s, log: log, earliest: first, latest: first, retries: newAbilityRetries(),
		version: s.client.Abilities().Version()}
}

func newAbilityRetries() states.Pace {
	return states.Pace{First: abilitiesRetryInterval, Longest: abilitiesInterval}
}

// followAbilities probes upstream's abilities until the mirrors end.
func (s *Set) followAbilities() {
	p := newAbilityProbes(s, s.log, time.Now().Add(abilitiesFirstDelay))
	for s.pause(watchCheckInterval) {
		if now := time.Now(); p.isDue(now) {
			p.probe(now)
		}
		p.logChange()
	}
}

// isDue reports whether it is time for a probe.
func (p *abilityProbes) isDue(now time.Time) bool {
	seen := p.mirrors.client.Abilities()
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
func (p *abilityProbes) probe(now time.Time) {
	all := p.mirrors.all()
	i := slices.IndexFunc(all, func(m *mirror) bool { return m.resource.IsReady() && m.isWell() })
	if i < 0 {
		return
	}
	m := all[i]
	p.isProbed = true
	failures := p.mirrors.countFailures()
	if err := m.prober.ProbeAbilities(p.mirrors.ctx); err != nil {
		p.retries.Note(now)
		p.earliest, p.latest = p.retries.Due(), p.retries.Due()
		p.log.Debug("upstream's abilities were not found out",
			zap.Stringer("resource", m.resource.Info), zap.Error(err))
		return
	}
	p.retries = newAbilityRetries()
	p.earliest, p.latest = now.Add(minAbilitiesInterval), now.Add(abilitiesInterval)
	p.probedAt, p.version, p.failures = now, p.mirrors.client.Abilities().Version(), failures
}

// logChange logs the abilities once they were probed, and when they have changed.
func (p *abilityProbes) logChange() {
	now := p.mirrors.client.Abilities()
	if now == p.logged || !p.isProbed {
		return
	}
	fields := []zap.Field{zap.String("version", now.Version())}
	for _, ability := range now.All() {
		fields = append(fields, zap.Stringer(ability.Name, ability.Value))
	}
	p.log.Info("abilities of upstream", fields...)
	p.logged = now
}

// Abilities are what upstream can do, as far as it is known.
func (s *Set) Abilities() abilities.Summary { return s.client.Abilities() }

// abilityMetrics show upstream's abilities.
type abilityMetrics struct{ info, ability *prometheus.Desc }

func newAbilityMetrics() abilityMetrics {
	return abilityMetrics{
		info: prometheus.NewDesc("spillway_upstream_info",
			"1 for the version of the API server. If several versions answer at its address, version is "+
				"the oldest, and newest_version the newest.",
			[]string{"version", "newest_version"}, nil),
		ability: prometheus.NewDesc("spillway_upstream_ability",
			"1 if the API server has the ability (watch_list or watch_list_compression), 0 if not. The "+
				"metric is missing while that is not known. If several versions answer at one address, the "+
				"least able version counts.",
			[]string{"ability"}, nil),
	}
}

func (c abilityMetrics) describe(out chan<- *prometheus.Desc) {
	out <- c.info
	out <- c.ability
}

func (c abilityMetrics) collect(out chan<- prometheus.Metric, now abilities.Summary) {
	if now.Oldest != "" {
		out <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, now.Oldest, now.Newest)
	}
	for _, ability := range now.All() {
		if ability.Value != abilities.Unknown {
			out <- prometheus.MustNewConstMetric(c.ability, prometheus.GaugeValue,
				float64(ability.Value-abilities.Absent), ability.Name)
		}
	}
}
