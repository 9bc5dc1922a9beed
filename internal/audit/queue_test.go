package audit

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// blocked is a file whose writes block until the gate opens.
type blocked struct {
	failingFile
	gate chan struct{}
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.gate
	return b.failingFile.Write(p)
}

func newBlocked() *blocked {
	return &blocked{failingFile: failingFile{left: -1}, gate: make(chan struct{})}
}

// A write that lasts forever holds up answers for a second, and only those that came before it was
// noticed: where a record is required they are then not given from here, otherwise they are, and
// their events wait. When it takes something again, so does the log.
func TestBlocked(t *testing.T) {
	for _, failClosed := range []bool{false, true} {
		t.Run(fmt.Sprintf("failClosed=%v", failClosed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, registry := newBlocked(), prometheus.NewRegistry()
				core, logs := observer.New(zap.InfoLevel)
				l := New(Options{Policy: levels, Out: out, FailClosed: failClosed, Log: zap.New(core),
					Metrics: NewMetrics(registry)})
				ask := func(want time.Duration) {
					t.Helper()
					began := time.Now()
					if err := l.Entry(request("end")).Answered(ok); (err != nil) != failClosed {
						t.Errorf("got %v", err)
					}
					if took := time.Since(began); took != want {
						t.Errorf("it took %v, want %v", took, want)
					}
				}
				ask(time.Second)
				for range 20 {
					ask(0)
				}
				l.Entry(request("end")).Ended()
				synctest.Wait()
				if n := logs.FilterMessage("the audit log cannot be written").Len(); n != 1 {
					t.Errorf("%d lines of the log: %v", n, logs.All())
				}
				close(out.gate)
				synctest.Wait()
				if err := l.Entry(request("end")).Answered(ok); err != nil {
					t.Error(err)
				}
				want := map[string]float64{"events": 23, "failures": 0, "passthrough_requests": 0}
				if failClosed {
					want["events"], want["failures"] = 2, 21
				}
				if got := counted(t, registry); !maps.Equal(got, want) {
					t.Errorf("counted %v, want %v", got, want)
				}
				synctest.Wait()
				if n := logs.FilterMessage("the audit log is written again").Len(); n != 1 {
					t.Errorf("%v", logs.All())
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Where a record is required, what waits behind a write that blocks is taken back: it is upstream's
// to record.
func TestTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, registry := newBlocked(), prometheus.NewRegistry()
		l := New(Options{Policy: levels, Out: out, FailClosed: true, Log: zap.NewNop(), Metrics: NewMetrics(registry)})
		for range 3 {
			go func() {
				if l.Entry(request("end")).Answered(ok) == nil {
					t.Error("it is on record")
				}
			}()
			synctest.Wait() // the first is being written, the others wait
		}
		time.Sleep(2 * time.Second)
		close(out.gate)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if n := len(out.events(t)); n != 1 {
			t.Errorf("%d events were written", n)
		}
		if got, want := counted(t, registry),
			(map[string]float64{"events": 0, "failures": 3, "passthrough_requests": 0}); !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
	})
}

// What waits is bounded; what is too much is lost, counted, and told of now and then.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, registry := newBlocked(), prometheus.NewRegistry()
		core, logs := observer.New(zapcore.ErrorLevel)
		l := New(Options{Policy: levels, Out: out, Log: zap.New(core), Metrics: NewMetrics(registry)})
		large := ResponseInfo{Code: http.StatusOK, Object: []byte(`"` + strings.Repeat("a", 1<<20) + `"`)}
		refused := 0
		for range 20 {
			if l.Entry(request("delete", "whole")).Answered(large) != nil {
				refused++
			}
		}
		if refused < 3 || refused > 5 {
			t.Errorf("%d of 20 MiB were refused, want those beyond 16 MiB", refused)
		}
		time.Sleep(time.Minute)
		if l.Entry(request("delete", "whole")).Answered(large) == nil {
			t.Error("there is room")
		}
		lost := counted(t, registry)["failures"]
		if lost != float64(2*(refused+1)) {
			t.Errorf("%v failures, want %d", lost, 2*(refused+1))
		}
		synctest.Wait()
		told := int64(0)
		for _, line := range logs.All() {
			told += line.ContextMap()["lostEvents"].(int64)
		}
		if logs.Len() != 2 || told != int64(lost) {
			t.Errorf("%d lines say that %d are lost", logs.Len(), told)
		}
		close(out.gate)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The end waits for a bounded time, and says how many events are lost by that.
func TestCloseWhileBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, registry := newBlocked(), prometheus.NewRegistry()
		l := New(Options{Policy: levels, Out: out, Log: zap.NewNop(), Metrics: NewMetrics(registry)})
		for range 3 {
			if err := l.Entry(request("get")).Answered(ok); err != nil {
				t.Error(err)
			}
		}
		l.Entry(request("end")).Ended()
		began := time.Now()
		if err := l.Close(); err == nil || !strings.Contains(err.Error(), "7 events are lost") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if n := counted(t, registry)["failures"]; n != 7 {
			t.Errorf("%v failures", n)
		}
		close(out.gate)
	})
}

// blockedLog is a log, of the process itself, that blocks until it is let go.
type blockedLog struct{ gate chan struct{} }

func (c blockedLog) Write(p []byte) (int, error) {
	<-c.gate
	return len(p), nil
}
func (blockedLog) Sync() error { return nil }

// No request waits for the process's own log, nor does Close.
func TestOwnLogBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, own := newBlocked(), blockedLog{make(chan struct{})}
		log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), own, zap.InfoLevel))
		l := New(Options{Policy: levels, Out: out, FailClosed: true, Log: log})
		began := time.Now()
		for range 3 {
			if l.Entry(request("end")).Answered(ok) == nil {
				t.Error("it is on record")
			}
			l.Entry(request("end")).Ended()
		}
		if took := time.Since(began); took != writeTimeout {
			t.Errorf("answers took %v", took)
		}
		began = time.Now()
		if l.Close() == nil {
			t.Error("everything was written")
		}
		if took := time.Since(began); took > closeTimeout+writeTimeout {
			t.Errorf("the end took %v", took)
		}
		close(own.gate)
		close(out.gate)
	})
}

// Ends wait for a bounded size too, by what clients made of them, and take no room from answers.
func TestFullOfEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, registry := newBlocked(), prometheus.NewRegistry()
		l := New(Options{Policy: levels, Out: out, Log: zap.NewNop(), Metrics: NewMetrics(registry)})
		if err := l.Entry(request("end")).Answered(ok); err != nil {
			t.Fatal(err)
		}
		long := request("end")
		long.URI = strings.Repeat("a", 1<<20)
		for range 100 {
			l.Entry(long).Ended()
		}
		if lost := counted(t, registry)["failures"]; lost < 36 || lost > 38 {
			t.Errorf("of 100 ends of a MiB %v are lost, want those beyond 64 MiB", lost)
		}
		if err := l.Entry(request("end")).Answered(ok); err != nil {
			t.Error(err)
		}
		close(out.gate)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// slow is a file in which each write takes its time.
type slow struct{ failingFile }

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(writeTimeout / 4)
	return s.failingFile.Write(p)
}

// Many ends at once are no log that blocks: what is answered meanwhile is written before them, and
// after the beginning of its own watch.
func TestManyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slow{failingFile{left: -1}}
		l := New(Options{Policy: levels, Out: out, FailClosed: true, Log: zap.NewNop()})
		for range 2000 {
			l.Entry(request("end")).Ended()
		}
		time.Sleep(writeTimeout + time.Millisecond)
		if n := len(out.events(t)); n == 2000 {
			t.Fatal("nothing waits")
		}
		watch := request("watch", "whole")
		watch.ID = "late"
		e := l.Entry(watch)
		if err := e.Started(200); err != nil {
			t.Error(err)
		}
		e.Ended()
		time.Sleep(time.Minute)
		all := out.events(t)
		if len(all) != 2003 || all[2002].AuditID != "late" || all[2002].Stage != "ResponseComplete" {
			t.Errorf("%d events, the last %+v", len(all), all[len(all)-1])
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Close logs the events that were lost since the last log line.
func TestCloseLogsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.ErrorLevel)
		p := &failingFile{left: -1}
		l := New(Options{Policy: levels, Out: p, Log: zap.New(core)})
		for range 2 {
			p.room(0)
			if l.Entry(request("get")).Answered(ok) == nil {
				t.Error("it is on record")
			}
			synctest.Wait()
			p.room(-1)
			if err := l.Entry(request("get")).Answered(ok); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		told := int64(0)
		for _, line := range logs.All() {
			told += line.ContextMap()["lostEvents"].(int64)
		}
		if told != 4 {
			t.Errorf("%d of 4 lost events were logged", told)
		}
	})
}

// An answer that is no JSON loses all its events.
func TestNoJSON(t *testing.T) {
	registry := prometheus.NewRegistry()
	l, _ := newLog(t, Options{Metrics: NewMetrics(registry)})
	if l.Entry(request("watch", "whole")).Answered(ResponseInfo{Code: http.StatusOK, Object: []byte("{")}) == nil {
		t.Error("it is on record")
	}
	if n := counted(t, registry)["failures"]; n != 3 {
		t.Errorf("%v failures, want 3", n)
	}
}
