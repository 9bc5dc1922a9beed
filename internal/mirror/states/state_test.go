package states

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// places are ways to every state. Those that may hold a complete state or not are there with and
// without.
var places = map[string]func(*Machine){
	"starting":           func(*Machine) {},
	"synced":             func(m *Machine) { m.Complete() },
	"resuming":           func(m *Machine) { m.Complete(); m.Interrupt(Cause{WhyUnreachable, "x"}) },
	"refused":            func(m *Machine) { m.Refuse(Cause{WhyRefused, "x"}, time.Time{}) },
	"refused+state":      func(m *Machine) { m.Complete(); m.Refuse(Cause{WhyRefused, "x"}, time.Time{}) },
	"falling_back":       func(m *Machine) { m.FallBack(Cause{WhyNoInitialEventsEnd, "x"}) },
	"falling_back+state": func(m *Machine) { m.Complete(); m.FallBack(Cause{WhyNoInitialEventsEnd, "x"}) },
	"given_up":           func(m *Machine) { m.GiveUp(Cause{WhyIdle, "x"}) },
}

// moves are all that can happen.
var moves = map[string]func(*Machine){
	"complete":  (*Machine).Complete,
	"open":      (*Machine).Open,
	"interrupt": func(m *Machine) { m.Interrupt(Cause{WhyOverloaded, "y"}) },
	"refuse":    func(m *Machine) { m.Refuse(Cause{WhyForbidden, "y"}, time.Time{}) },
	"lose":      func(m *Machine) { m.Lose(Cause{WhyNotServed, "y"}, time.Time{}) },
	"fall back": func(m *Machine) { m.FallBack(Cause{WhyNoInitialEventsEnd, "y"}) },
	"wait":      func(m *Machine) { m.Wait(time.Date(2026, 1, 1, 0, 0, 9, 0, time.UTC)) },
	"give up":   func(m *Machine) { m.GiveUp(Cause{WhyMemoryPressure, "y"}) },
}

// table is where each move leads from each place.
var table = map[string]map[string]string{
	"starting": {"complete": "synced", "open": "starting", "interrupt": "starting", "refuse": "refused", "lose": "refused",
		"fall back": "falling_back", "wait": "starting", "give up": "given_up"},
	"synced": {"complete": "synced", "open": "synced", "interrupt": "resuming", "refuse": "refused+state",
		"lose":      "refused",
		"fall back": "falling_back+state", "wait": "synced", "give up": "given_up"},
	"resuming": {"complete": "synced", "open": "synced", "interrupt": "resuming", "refuse": "refused+state",
		"lose":      "refused",
		"fall back": "falling_back+state", "wait": "resuming", "give up": "given_up"},
	"refused": {"complete": "synced", "open": "refused", "interrupt": "starting", "refuse": "refused", "lose": "refused",
		"fall back": "falling_back", "wait": "refused", "give up": "given_up"},
	"refused+state": {"complete": "synced", "open": "synced", "interrupt": "resuming", "refuse": "refused+state",
		"lose":      "refused",
		"fall back": "falling_back+state", "wait": "refused+state", "give up": "given_up"},
	"falling_back": {"complete": "synced", "open": "falling_back", "interrupt": "falling_back", "refuse": "refused",
		"lose":      "refused",
		"fall back": "falling_back", "wait": "falling_back", "give up": "given_up"},
	"falling_back+state": {"complete": "synced", "open": "falling_back+state", "interrupt": "falling_back+state",
		"refuse": "refused+state", "lose": "refused", "fall back": "falling_back+state", "wait": "falling_back+state",
		"give up": "given_up"},
	"given_up": {"complete": "given_up", "open": "given_up", "interrupt": "given_up", "refuse": "given_up",
		"lose":      "given_up",
		"fall back": "given_up", "wait": "given_up", "give up": "given_up"},
}

// place is the name of a state in the table.
func place(s State) string {
	name := string(s.Kind())
	if s.Holds() && (s.Kind() == KindRefused || s.Kind() == KindFallingBack) {
		name += "+state"
	}
	return name
}

func TestEveryMoveFromEveryStateLeadsWhereTheTableSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if len(table) != len(places) {
			t.Fatalf("%d rows for %d places", len(table), len(places))
		}
		for from, arrive := range places {
			if len(table[from]) != len(moves) {
				t.Errorf("%s: %d entries for %d moves", from, len(table[from]), len(moves))
			}
			for what, move := range moves {
				m := NewMachine(nil)
				arrive(m)
				if got := place(m.State()); got != from {
					t.Fatalf("the way to %s leads to %s", from, got)
				}
				before := m.State()
				time.Sleep(time.Second)
				move(m)
				after := m.State()
				if got, want := place(after), table[from][what]; got != want {
					t.Errorf("%s, %s: %s, want %s", from, what, got, want)
				}
				if same := before.Kind() == after.Kind(); same != after.Since().Equal(before.Since()) {
					t.Errorf("%s, %s: since %v, before %v", from, what, after.Since(), before.Since())
				}
			}
		}
	})
}

// What each kind may have, whichever way it was reached.
func TestStatesHaveNoMoreThanTheirKindHas(t *testing.T) {
	for from, arrive := range places {
		for what, move := range moves {
			m := NewMachine(nil)
			arrive(m)
			move(m)
			moves["wait"](m)
			s := m.State()
			name := fmt.Sprintf("%s, %s: %s", from, what, s.Kind())
			switch s.Kind() {
			case KindSynced:
				if !s.Holds() || !s.Next().IsZero() {
					t.Errorf("%s holds %v, next %v", name, s.Holds(), s.Next())
				}
			case KindResuming:
				if !s.Holds() || s.Next().IsZero() || s.Cause().Why == "" {
					t.Errorf("%s holds %v, next %v, cause %v", name, s.Holds(), s.Next(), s.Cause())
				}
			case KindStarting:
				if s.Holds() || s.Next().IsZero() {
					t.Errorf("%s holds %v, next %v", name, s.Holds(), s.Next())
				}
			case KindGivenUp:
				if s.Holds() || !s.Next().IsZero() || s.Cause().Why == "" {
					t.Errorf("%s holds %v, next %v, cause %v", name, s.Holds(), s.Next(), s.Cause())
				}
			default:
				if s.Next().IsZero() || s.Cause().Why == "" {
					t.Errorf("%s next %v, cause %v", name, s.Next(), s.Cause())
				}
			}
		}
	}
}

// A mirror that fell back says so for as long as it goes on that way.
func TestSyncedByFallingBackKeepsItsCause(t *testing.T) {
	m := NewMachine(nil)
	m.FallBack(Cause{WhyNoInitialEventsEnd, "no end"})
	m.Interrupt(Cause{WhyOverloaded, "later"})
	m.Complete()
	if s := m.State(); s.Kind() != KindSynced || s.Cause().Text != "no end" {
		t.Errorf("%s, %v", s.Kind(), s.Cause())
	}
}

func TestTransitionsAreReportedOfKindsAndCausesOnly(t *testing.T) {
	var told []string
	m := NewMachine(func(t Transition) {
		told = append(told, string(t.From.Kind())+">"+string(t.To.Kind())+" "+string(t.To.Cause().Why))
	})
	m.Open()
	m.Complete()
	m.Complete()
	m.Interrupt(Cause{WhyUnreachable, "a"})
	m.Interrupt(Cause{WhyUnreachable, "b"})
	m.Wait(time.Now())
	m.Interrupt(Cause{WhyOverloaded, "c"})
	m.Open()
	want := "[starting>synced  synced>resuming unreachable resuming>resuming overloaded resuming>synced ]"
	if got := fmt.Sprint(told); got != want {
		t.Errorf("transitions %s, want %s", got, want)
	}
}
