package mirror

import (
	"slices"
	"time"

	"spillway/internal/upstream/abilities"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

const (
	// abilitiesFirst is how long after the start upstream's abilities are probed for the first time:
	// mirrors need upstream more. Whether it serves watch-lists they find out themselves.
	abilitiesFirst = 10 * time.Second
	// abilitiesInterval is how often they are probed at least. They are probed sooner after another
	// version or an outage was seen: abilitiesPause bounds how soon. While several versions answer,
	// they are probed each rollingCheck.
	abilitiesInterval = 10 * time.Minute
	abilitiesPause    = 15 * time.Second
)

// abilityProbes decides when upstream's abilities are probed, and logs what they are. It belongs to
// one goroutine.
type abilityProbes struct {
	mirrors  *Set
	lines    *zap.Logger
	at       time.Time // of the last probe
	version  string    // then
	failures uint64    // of all mirrors then
	probed   bool
	logged   abilities.Summary // the last that were
}

// followAbilities probes upstream's abilities until the mirrors end.
func (s *Set) followAbilities() {
	p := &abilityProbes{mirrors: s, lines: s.log, at: time.Now().Add(abilitiesFirst - abilitiesInterval)}
	p.version = s.client.Abilities().Version()
	for s.pause(watchCheck) {
		if p.due() {
			p.probe()
		}
		p.log()
	}
}

// due reports whether it is time for a probe.
func (p *abilityProbes) due() bool {
	now, since := p.mirrors.client.Abilities(), time.Since(p.at)
	switch {
	case since < abilitiesPause:
		return false
	case since >= abilitiesInterval, now.Version() != p.version, p.mirrors.failures() != p.failures:
		return true
	}
	return now.Oldest != now.Newest && since >= rollingCheck
}

// failures is how often requests of the mirrors have failed.
func (s *Set) failures() (n uint64) {
	for _, m := range s.all() {
		n += m.reflector.Status().Failures
	}
	return n
}

// probe probes by the resource of any mirror that is well. A failure is tried again after
// abilitiesPause.
func (p *abilityProbes) probe() {
	all := p.mirrors.all()
	i := slices.IndexFunc(all, func(m *mirror) bool { return m.resource.IsReady() && m.well() })
	if i < 0 {
		return
	}
	m := all[i]
	p.probed = true
	failures := p.mirrors.failures()
	if err := m.prober.ProbeAbilities(p.mirrors.ctx); err != nil {
		p.at = time.Now().Add(2*abilitiesPause - abilitiesInterval)
		p.lines.Debug("upstream's abilities were not found out",
			zap.Stringer("resource", m.resource.Info), zap.Error(err))
		return
	}
	p.at, p.version, p.failures = time.Now(), p.mirrors.client.Abilities().Version(), failures
}

// log logs the abilities once they were probed, and when they have changed.
func (p *abilityProbes) log() {
	now := p.mirrors.client.Abilities()
	if now == p.logged || !p.probed {
		return
	}
	fields := []zap.Field{zap.String("version", now.Version())}
	for _, one := range now.All() {
		fields = append(fields, zap.Stringer(one.Name, one.Value))
	}
	p.lines.Info("abilities of upstream", fields...)
	p.logged = now
}

// Abilities are what upstream can do, as far as it is known.
func (s *Set) Abilities() abilities.Summary { return s.client.Abilities() }

// abilityMetrics show upstream's abilities.
type abilityMetrics struct{ info, ability *prometheus.Desc }

func newAbilityMetrics() abilityMetrics {
	return abilityMetrics{
		info: prometheus.NewDesc("spillway_upstream_info",
			"1 for the version of the apiserver; of several that answer at its address, the oldest and the newest.",
			[]string{"version", "newest_version"}, nil),
		ability: prometheus.NewDesc("spillway_upstream_ability",
			"1 if the apiserver has the ability, 0 if it has not; missing while that is not known: watch_list or "+
				"watch_list_compression. Of several versions behind one address the least able counts.",
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
	for _, one := range now.All() {
		if one.Value != abilities.Unknown {
			out <- prometheus.MustNewConstMetric(c.ability, prometheus.GaugeValue,
				float64(one.Value-abilities.Absent), one.Name)
		}
	}
}
