package transport

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A name may resolve to other addresses every minute: those that nothing is connected to any more
// are forgotten, once they are not avoided either.
func TestAddressesWithoutConnectionsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newAddressTable(func() {})
		kept := table.acquire("10.0.0.1:443")
		for i := range 100 {
			table.release(table.acquire(fmt.Sprintf("10.0.1.%d:443", i)))
		}
		if n := len(table.byText); n != 1 {
			t.Errorf("%d addresses are held with 1 connection", n)
		}
		if table.acquire("10.0.0.1:443") != kept {
			t.Error("two connections to one address do not know of each other")
		}
		table.release(kept)
		mute := table.acquire("10.0.2.1:443")
		table.markUnresponsive(mute)
		table.release(mute)
		table.release(kept)
		if n := len(table.byText); n != 1 || !table.isUnresponsive("10.0.2.1:443") {
			t.Errorf("%d addresses are held while 1 is avoided", n)
		}
		time.Sleep(avoidDuration + 1)
		table.release(table.acquire("10.0.0.1:443"))
		if n := len(table.byText); n != 0 {
			t.Errorf("%d addresses are held in the end", n)
		}
	})
}
