package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"spillway/bench/rig"
)

const (
	writeEvery = 30 * time.Millisecond
	objects    = 60
	objectName = "soak-" // and a number
)

// writer creates, updates and deletes objects straight at kube-apiserver, one after the other, and
// keeps the ledger of it. Invariant: a write whose answer was lost is in the ledger if it took
// place, before the next one begins.
type writer struct {
	maps    corev1client.ConfigMapInterface
	ledger  *eventLedger
	outages *outages
	random  *rand.Rand
	refused atomic.Int64 // writes that failed although upstream was there
	lost    atomic.Int64 // writes that were not answered while it was not
}

// run writes until ctx ends.
func (w *writer) run(ctx context.Context) {
	for turn := 0; ctx.Err() == nil; turn++ {
		began := time.Now()
		done, err := w.write(ctx, turn%objects, turn)
		switch {
		case err == nil:
			w.ledger.add(done)
		case ctx.Err() == nil:
			if w.outages.excuse(began, time.Now()) {
				w.lost.Add(1)
			} else {
				w.refused.Add(1)
				rig.Say("write: %v", err)
			}
			w.settle(ctx, turn%objects)
		}
		_ = rig.Sleep(ctx, writeEvery) // which ends the loop
	}
}

// write does to an object what its turn is.
func (w *writer) write(ctx context.Context, object, turn int) (write, error) {
	o := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: objectName + strconv.Itoa(object), Labels: map[string]string{"n": strconv.Itoa(w.random.IntN(10))},
			Annotations: map[string]string{"at": rig.StampPrefix + strconv.FormatInt(time.Now().UnixNano(), 10)},
		},
		Data: map[string]string{"turn": strconv.Itoa(turn), "padding": strings.Repeat("x", 4<<10)},
	}
	var answer *corev1.ConfigMap
	var err error
	switch {
	case w.ledger.version(object) == 0:
		answer, err = w.maps.Create(ctx, o, metav1.CreateOptions{})
	case w.random.IntN(8) == 0:
		answer, err = &corev1.ConfigMap{}, w.maps.Delete(ctx, o.Name, metav1.DeleteOptions{})
	default:
		answer, err = w.maps.Update(ctx, o, metav1.UpdateOptions{})
	}
	if err != nil {
		return write{}, err
	}
	return write{object: object, rv: versionOf(answer), at: time.Now(), answered: true}, nil
}

// settle reads the object, until there is an answer, to find out whether a write took place.
func (w *writer) settle(ctx context.Context, object int) {
	rig.Eventually(ctx, time.Hour, 200*time.Millisecond, func() bool {
		o, err := w.maps.Get(ctx, objectName+strconv.Itoa(object), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false
		}
		rv := uint64(0)
		if err == nil {
			rv = versionOf(o)
		}
		if rv != w.ledger.version(object) {
			w.ledger.add(write{object: object, rv: rv, at: time.Now()})
		}
		return true
	})
}

// versionOf is the resourceVersion of an object, 0 if it has none.
func versionOf(o interface{ GetResourceVersion() string }) uint64 {
	rv, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64) // kube-apiserver's are decimal
	return rv
}
