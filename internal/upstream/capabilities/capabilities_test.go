package capabilities

import (
	"testing"
	"testing/synctest"
	"time"
)

// Two versions behind one address: what the older cannot do counts for as long as it is seen.
func TestLeastAbleVersionCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecord(true)
		can := Summary{WatchList: Present, WatchListCompression: Present}
		cannot := can
		cannot.WatchListCompression = Absent
		see := func(version string, a Summary) {
			r.ObserveVersion(version)
			r.observe(a)
		}
		expect := func(oldest, newest string, compression Capability) {
			t.Helper()
			got := r.Summary()
			if got.Oldest != oldest || got.Newest != newest || got.WatchListCompression != compression ||
				got.WatchList != Present {
				t.Errorf("%v", got)
			}
		}
		see("v1.36.3", cannot)
		expect("v1.36.3", "v1.36.3", Absent)
		for range 5 {
			time.Sleep(mixedVersionsPeriod / 2)
			see("v1.37.1", can)
			expect("v1.36.3", "v1.37.1", Absent)
			see("v1.36.3", cannot)
			see("v1.37.1", can)
			expect("v1.36.3", "v1.37.1", Absent)
		}
		time.Sleep(mixedVersionsPeriod)
		see("v1.37.1", can)
		expect("v1.37.1", "v1.37.1", Present)
		time.Sleep(time.Second)
		see("v1.36.3", cannot) // and back
		expect("v1.36.3", "v1.37.1", Absent)
		see("v1.9.0-beta.1+vendor", Summary{})
		expect("v1.9.0-beta.1+vendor", "v1.37.1", Absent)
	})
}
