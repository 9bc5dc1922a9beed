package flowcontrol

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Each limit that rejects a request of a user notes whose it was, and why.
func TestRejectionsNameUserAndReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{Watches: 1, ListBytes: 2, PassThrough: 8, PassThroughQPS: 1, PassThroughBurst: 1},
			Queue{}, nil)
		defer l.Close()
		addr := AddrFlow(netip.MustParseAddr("10.0.0.7"))
		began := time.Now()
		for range 3 {
			l.AdmitLasting(UserFlow("watcher"))
			l.AllowRate(addr)
			time.Sleep(time.Millisecond)
		}
		for range 3 {
			l.AdmitList(nil, UserFlow("lister"), 1)
		}
		l.AdmitList(nil, UserFlow("watcher"), 1)
		got := l.Rejections()
		if len(got) != 3 {
			t.Fatalf("%+v", got)
		}
		want := []RejectedFlow{
			{Flow: UserFlow("lister"), Limit: LimitListBytes, Reason: ReasonShare, Counted: 2,
				Since: began.Add(3 * time.Millisecond), At: began.Add(3 * time.Millisecond)},
			{Flow: addr, Limit: LimitPassThrough, Reason: ReasonRate, Counted: 2,
				Since: began.Add(time.Millisecond), At: began.Add(2 * time.Millisecond)},
			{Flow: UserFlow("watcher"), Limit: LimitWatches, Reason: ReasonLimit, Counted: 2,
				Since: began.Add(time.Millisecond), At: began.Add(2 * time.Millisecond)},
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("number %d is %+v, want %+v", i, got[i], want[i])
			}
		}
	})
}

// A request that waited too long was rejected, and one whose client has left was not.
func TestRejectionsLeaveCancelledRequestsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{PassThrough: 1, PassThroughQPS: 1}, Queue{Requests: 9, RequestsPerUser: 9}, nil)
		if _, refusal := l.AdmitPassThrough(nil, UserFlow("first"), true); refusal != nil {
			t.Fatal(refusal)
		}
		if _, refusal := l.AdmitPassThrough(nil, UserFlow("late"), true); refusal == nil || refusal.Reason != ReasonTimeout {
			t.Fatalf("%+v", refusal)
		}
		leaves := func(gone func()) func() {
			ctx, stop := context.WithTimeout(context.Background(), time.Second)
			context.AfterFunc(ctx, gone)
			return stop
		}
		if _, refusal := l.AdmitPassThrough(leaves, UserFlow("gone"), true); refusal == nil ||
			refusal.Reason != ReasonCancelled {
			t.Fatalf("%+v", refusal)
		}
		l.Close() // which sends the requests that wait elsewhere
		if _, refusal := l.AdmitPassThrough(nil, UserFlow("closed"), true); refusal == nil {
			t.Fatal("admitted")
		}
		for range 3 {
			l.AllowRate(UserFlow("closed"))
		}
		if got := l.Rejections(); len(got) != 1 || got[0].Flow.User != "late" || got[0].Reason != ReasonTimeout {
			t.Errorf("%+v", got)
		}
	})
}

// However many users with however long names are rejected, the last 64 are remembered.
func TestRejectionsAreBounded(t *testing.T) {
	l := NewLimiter(Limits{PassThroughQPS: 1e-9, PassThroughBurst: 1}, Queue{}, nil)
	defer l.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 1000 {
		l.rejected.note(LimitWatches, UserFlow(fmt.Sprintf("%04d", i)+strings.Repeat("é", 1<<15)), ReasonShare)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 256<<10 {
		t.Errorf("%d bytes are held", held)
	}
	got := l.Rejections()
	if len(got) != rejectedFlowsLimit {
		t.Fatalf("%d are remembered", len(got))
	}
	for _, one := range got {
		if name := one.Flow.User; len(name) > rejectedNameBytesLimit || name < "0936" ||
			strings.ToValidUTF8(name, "") != name {
			t.Errorf("%q is remembered", name)
		}
	}
	var none *Limiter
	if len(none.Rejections()) != 0 {
		t.Error("what limits nothing rejects")
	}
}
