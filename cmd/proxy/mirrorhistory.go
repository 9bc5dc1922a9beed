package main

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// historyCheck is how often mirrors are looked at that have begun another watch: so long a restored etcd may go unnoticed.
const historyCheck = 5 * time.Second

// checkHistories asks upstream how far it is, for each mirror that has begun another watch, until the mirrors end. Whatever
// happened to upstream, watches begin anew after it; one that begins after its etcd was restored is silent about that, and the
// mirror would be wrong for ever if no client ever asked for a proof (see prober). It costs one LIST of one object per watch.
func (m *mirrors) checkHistories(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	checked := map[*mirror]uint64{} // watches begun before the last check
	for {
		select {
		case <-tick.C:
		case <-m.ctx.Done():
			return
		}
		now := map[*mirror]uint64{}
		for _, one := range m.all() {
			begun := one.reflector.Status().Watches
			if begun == checked[one] || one.checkHistory(m.ctx, m.log) {
				now[one] = begun
			}
		}
		checked = now
	}
}

// checkHistory reports whether upstream said how far it is.
func (m *mirror) checkHistory(ctx context.Context, log *zap.Logger) bool {
	_, probe, err := prober{m.prober, m}.Begin(ctx)
	if err != nil {
		log.Debug("upstream did not say how far it is", zap.Stringer("resource", m.resource.Info), zap.Error(err))
		return false
	}
	probe.Close()
	return true
}
