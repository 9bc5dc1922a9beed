package cache

import (
	"testing"
	"time"
)

// While memory is short history keeps what is young, whatever room there is, and nothing else; then
// it grows again.
func TestShortHistoryKeepsOnlyWhatIsYoung(t *testing.T) {
	s := newScript(HistoryLimits{HistoryBytes: 100_000, HistoryMinAge: time.Hour})
	for range 10 {
		s.add(t, 10*time.Second)
	}
	if s.SetShortHistory(false); s.Log().First() != s.Log().Head()-10 {
		t.Error("history was shortened while memory suffices")
	}
	if _, err := s.SnapshotAt(15); err != nil {
		t.Fatal(err)
	}
	if !s.SetShortHistory(true) {
		t.Error("nothing was let go of")
	}
	s.checkKept(t, 8, 12) // of 75 s
	if s.exactSnapshots.get(15, s.Generation()) != nil {
		t.Error("an old state is still kept")
	}
	if s.SetShortHistory(true) {
		t.Error("something was let go of that is young")
	}
	s.now = s.now.Add(time.Minute) // nothing happens
	s.SetShortHistory(true)
	s.checkKept(t, 2, 18)
	s.add(t, time.Second)
	s.checkKept(t, 3, 18)
	s.SetShortHistory(false)
	s.add(t, time.Minute)
	s.checkKept(t, 4, 18)
	s.now = s.now.Add(time.Hour)
	s.SetShortHistory(true)
	s.checkKept(t, 0, 22)
	s.add(t, time.Second)
	s.checkKept(t, 1, 22)
}

// A resource that is configured to keep less keeps less.
func TestShortHistoryKeepsAShorterConfiguredAge(t *testing.T) {
	s := newScript(HistoryLimits{HistoryBytes: 100_000, HistoryMinAge: time.Minute})
	for range 10 {
		s.add(t, 10*time.Second)
	}
	s.SetShortHistory(true)
	s.checkKept(t, 6, 14)
}
