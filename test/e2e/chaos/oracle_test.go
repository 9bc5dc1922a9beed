package chaos

import (
	"strings"
	"testing"
	"time"
)

// past is a history of three objects, and one that leaves team red and joins it again.
func past() *timeline {
	t := newTimeline()
	for _, h := range []struct {
		key string
		v   version
	}{
		{"n/a", version{rv: 10, uid: "a", mark: "1", team: "red"}},
		{"n/b", version{rv: 11, uid: "b", mark: "2", team: "red"}},
		{"n/a", version{rv: 13, uid: "a", mark: "3", team: "red"}},
		{"n/b", version{rv: 15, gone: true}},
		{"n/a", version{rv: 17, uid: "a", mark: "4", team: "blue"}},
		{"n/c", version{rv: 19, uid: "c", mark: "5", team: "red"}},
		{"n/a", version{rv: 21, gone: true}},
		{"n/a", version{rv: 23, uid: "a2", mark: "6", team: "red"}},
	} {
		t.add("things", h.key, h.v)
	}
	t.head = 30
	return t
}

func seen(kind, key string, rv uint64, uid, mark, team string) note {
	return note{kind: kind, key: key, version: version{rv: rv, uid: uid, mark: mark, team: team}}
}

func bookmark(rv uint64) note { return note{kind: "BOOKMARK", version: version{rv: rv}} }

func opened(rv uint64) note { return note{kind: "opened", version: version{rv: rv}} }

func listed(t *timeline, v view, rv uint64) note {
	return note{kind: "listed", version: version{rv: rv}, state: t.state(v, rv)}
}

func TestOracle(t *testing.T) {
	all, red := view{resource: "things"}, view{resource: "things", team: "red"}
	truth := past()
	a13, bGone, a17 := seen("MODIFIED", "n/a", 13, "a", "3", "red"), seen("DELETED", "n/b", 15, "b", "2", "red"),
		seen("MODIFIED", "n/a", 17, "a", "4", "blue")
	c19 := seen("ADDED", "n/c", 19, "c", "5", "red")
	initial := opened(0)
	initial.initial = true
	consistent := listed(truth, all, 12)
	consistent.asked.floor = 13
	early := note{kind: "ended", early: true}
	wrongMark := a13
	wrongMark.version.mark = "x"
	for _, test := range []struct {
		name    string
		view    view
		excused []effect
		notes   []note
		wrong   string
	}{
		{"all of it", all, nil, []note{listed(truth, all, 12), opened(12), a13, bookmark(14), bGone, a17, bookmark(18), c19,
			{kind: "ended"}}, ""},
		{"a team", red, nil, []note{listed(truth, red, 12), opened(12), a13, bGone,
			seen("DELETED", "n/a", 17, "a", "3", "red"), c19, bookmark(20)}, ""},
		{"resumed", all, nil, []note{listed(truth, all, 12), opened(12), a13, {kind: "ended"}, opened(13), bGone,
			bookmark(16)}, ""},
		{"initial events", all, nil, []note{
			initial, seen("ADDED", "n/b", 11, "b", "2", "red"), seen("ADDED", "n/a", 13, "a", "3", "red"),
			listed(truth, all, 14), bGone,
		}, ""},
		{"dropped", all, nil, []note{listed(truth, all, 12), opened(12), bGone}, "is missing"},
		{"dropped, and promised", all, []effect{seam}, []note{listed(truth, all, 12), opened(12), bGone, bookmark(16)},
			"a bookmark at 16"},
		{"promised before it comes", all, []effect{seam}, []note{listed(truth, all, 12), opened(12), bookmark(14), a13},
			"a bookmark at 14"},
		{"repeated", all, []effect{seam}, []note{listed(truth, all, 12), opened(12), a13, a13}, "comes after"},
		{"repeated to who resumes", all, []effect{seam}, []note{listed(truth, all, 13), opened(13), a13}, "comes after"},
		{"out of order", all, []effect{seam}, []note{listed(truth, all, 12), opened(12), bGone, a13}, "comes after"},
		{"of another version", all, nil, []note{listed(truth, all, 12), opened(12), wrongMark}, "what happened at 13"},
		{"of another team", red, nil, []note{listed(truth, red, 12), opened(12), a13, bGone, a17}, "what happened at 17"},
		{"MODIFIED what is not held", all, []effect{seam},
			[]note{listed(truth, all, 12), opened(12), seen("MODIFIED", "n/c", 19, "c", "5", "red")}, "does not hold"},
		{"ADDED what is held", all, nil,
			[]note{listed(truth, all, 12), opened(12), seen("ADDED", "n/a", 13, "a", "3", "red")}, "holds"},
		{"DELETED before it is", all, []effect{seam},
			[]note{listed(truth, all, 18), opened(18), seen("DELETED", "n/c", 19, "c", "5", "red")}, "does not hold"},
		{"DELETED what lives on", all, []effect{seam},
			[]note{listed(truth, all, 20), opened(20), seen("DELETED", "n/c", 20, "c", "5", "red")}, "DELETED after"},
		{"DELETED without a seam", all, nil,
			[]note{listed(truth, all, 13), opened(13), seen("DELETED", "n/b", 14, "b", "2", "red")}, "DELETED after"},
		{"a seam", all, []effect{seam}, []note{
			listed(truth, all, 14), opened(14), seen("DELETED", "n/b", 14, "b", "2", "red"),
			seen("DELETED", "n/a", 14, "a", "3", "red"), c19,
			seen("ADDED", "n/a", 23, "a2", "6", "red"), bookmark(25),
		}, ""},
		{"a seam, again", all, []effect{seam}, []note{
			listed(truth, all, 14), opened(14), seen("DELETED", "n/b", 14, "b", "2", "red"), {kind: "ended"}, opened(14),
			seen("DELETED", "n/b", 14, "b", "2", "red"), a17,
		}, ""},
		{"a bookmark inside a seam", all, []effect{seam}, []note{
			listed(truth, all, 14), opened(14), seen("DELETED", "n/b", 14, "b", "2", "red"), bookmark(14),
		}, "a bookmark at 14"},
		{"a bookmark backwards", all, nil, []note{listed(truth, all, 14), opened(14), bookmark(14), bookmark(13)},
			"after 14"},
		{"a stale state", all, []effect{cut, refuse, seam, expire}, []note{consistent}, "older than 13"},
		{"a wrong state", all, nil, []note{{kind: "listed", version: version{rv: 14}, state: truth.state(all, 12)}},
			"never was"},
		{"a ghost", all, nil, []note{{kind: "listed", version: version{rv: 15}, state: truth.state(all, 14)}}, "ghost"},
		{"DELETED among the initial events", all, nil, []note{initial, bGone}, "among the initial events"},
		{"a bookmark among the initial events", all, nil, []note{initial, bookmark(14)}, "among the initial events"},
		{"an early end", all, nil, []note{listed(truth, all, 12), opened(12), early}, "before its time"},
		{"an early end of the initial events", all, nil, []note{initial, seen("ADDED", "n/b", 11, "b", "2", "red"), early},
			""},
		{"an early end that is excused", all, []effect{cut}, []note{listed(truth, all, 12), opened(12), early}, ""},
		{"broken", all, nil, []note{{kind: "broken"}}, "broke"},
		{"expired", all, []effect{cut, refuse}, []note{{kind: "ERROR", code: 410}}, "begin again"},
		{"refused", all, []effect{expire}, []note{{kind: "refused", code: 429}}, "429"},
		{"shown to a stranger", all, []effect{cut, refuse, seam, expire, remove, rewrite}, []note{{kind: "shown", code: 200}},
			"may see nothing"},
		{"forbidden by who has just begun", all, []effect{deny}, []note{{kind: "refused", code: 403}}, ""},
		{"forbidden", all, []effect{cut, refuse, seam, expire, remove}, []note{{kind: "refused", code: 403}}, "403"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := &oracle{truth: []*timeline{truth}, excuses: &allowances{}, tally: &tally{}}
			o.excuses.from(time.Now().Add(-time.Hour), test.excused...)
			j := &receivedEvents{name: "client", view: test.view}
			for _, n := range test.notes {
				j.add(n)
			}
			expectWrong(t, o.judge(j), test.wrong)
		})
	}
}

// What a fault excuses is a violation before it, and once all has been mended.
func TestFaultExcusesOnlyUntilMended(t *testing.T) {
	now := time.Now()
	e := &allowances{}
	e.from(now, seam, cut)
	e.from(now.Add(time.Second), seam)
	e.until(now.Add(time.Minute), seam)
	for _, test := range []struct {
		what    effect
		after   time.Duration
		allowed bool
	}{
		{seam, -1, false}, {seam, 0, true}, {seam, time.Minute, false}, {cut, time.Minute, true}, {expire, 0, false},
	} {
		if e.allow(test.what, now.Add(test.after)) != test.allowed {
			t.Errorf("%d after %v: not %t", test.what, test.after, test.allowed)
		}
	}
}

// Upstream may go back to a backup: clients go with it, never back.
func TestOracleRewrittenHistory(t *testing.T) {
	all := view{resource: "things"}
	before := past()
	later := before.branch(16)
	later.add("things", "n/a", version{rv: 18, uid: "a", mark: "x"})
	later.head = 30
	other := seen("MODIFIED", "n/a", 18, "a", "x", "")
	for _, test := range []struct {
		name  string
		notes []note
		wrong string
	}{
		{"goes on", []note{listed(before, all, 16), opened(16), other, bookmark(20)}, ""},
		{"begins again", []note{listed(before, all, 22), {kind: "ERROR", code: 410}, listed(later, all, 20)}, ""},
		{"not both", []note{listed(before, all, 17), opened(17), other, seen("ADDED", "n/c", 19, "c", "5", "red")},
			"what happened at 19"},
		{"neither is told", []note{listed(before, all, 18), opened(18), bookmark(26)}, "a bookmark at 26"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := &oracle{truth: []*timeline{before, later}, excuses: &allowances{}, tally: &tally{}}
			o.excuses.from(time.Now().Add(-time.Hour), seam, rewrite)
			j := &receivedEvents{name: "client", view: all}
			for _, n := range test.notes {
				j.add(n)
			}
			expectWrong(t, o.judge(j), test.wrong)
		})
	}
}

// What a GET finds was there at the time of the request, or later.
func TestOracleReads(t *testing.T) {
	o := &oracle{truth: []*timeline{past()}, excuses: &allowances{}, tally: &tally{}}
	there := func(rv uint64) version { return past().at("things", "n/a", rv) }
	for _, test := range []struct {
		name  string
		acked ack
		key   string
		found version
		wrong string
	}{
		{"what was written", ack{key: "n/a", rv: 13, done: true}, "n/a", there(13), ""},
		{"something later", ack{key: "n/a", rv: 13, done: true}, "n/a", there(17), ""},
		{"something older", ack{key: "n/a", rv: 13, done: true}, "n/a", there(10), "since 13"},
		{"deleted, and there", ack{key: "n/b", uid: "b", done: true}, "n/b", past().at("things", "n/b", 11), "since 15"},
		{"deleted", ack{key: "n/b", uid: "b", done: true}, "n/b", version{gone: true}, ""},
		{"written, and not there", ack{key: "n/c", rv: 19, done: true}, "n/c", version{gone: true}, "since 19"},
		{"not yet there", ack{}, "n/c", version{gone: true}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			expectWrong(t, o.read("things", reading{key: test.key, found: test.found, acked: test.acked}), test.wrong)
		})
	}
}

func expectWrong(t *testing.T, err error, wrong string) {
	t.Helper()
	switch {
	case wrong == "" && err != nil:
		t.Errorf("it is all right, not: %v", err)
	case wrong != "" && err == nil:
		t.Errorf("nothing is found, not: %s", wrong)
	case wrong != "" && !strings.Contains(err.Error(), wrong):
		t.Errorf("found: %v; not: %s", err, wrong)
	}
}
